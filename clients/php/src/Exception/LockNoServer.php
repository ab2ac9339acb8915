<?php

declare(strict_types=1);

namespace Serverlock\Exception;

/** No connection to a server, or no reply in time. */
final class LockNoServer extends LockException
{
    public const KIND = 'no_server';
}
