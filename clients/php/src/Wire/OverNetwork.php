<?php

declare(strict_types=1);

namespace Serverlock\Wire;

use Serverlock\Core\SystemTime;
use Serverlock\Core\Time;

/**
 * What all clients of real servers have in common.
 *
 * @internal
 */
trait OverNetwork
{
    public function open(Address $address, float $timeout): Connection
    {
        return StreamConnection::open($address, $timeout);
    }

    public function clock(): Time
    {
        return new SystemTime();
    }
}
