<?php

declare(strict_types=1);

namespace Serverlock;

/** How a hold ended. */
enum End: string
{
    /** It was released in time. */
    case Released = 'released';
    /** It was lost, or its release found that the grant had ended before. */
    case Lost = 'lost';
    /** Its Held was dropped without a release, so nothing renews the lease. */
    case Expired = 'expired';
}
