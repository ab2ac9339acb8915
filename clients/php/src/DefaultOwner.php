<?php

declare(strict_types=1);

namespace Serverlock;

/** The default for the owner option. */
enum DefaultOwner
{
    /** `host:pid` of this process, so that operators see which process holds what; a child has its own. */
    case HostAndPid;
}
