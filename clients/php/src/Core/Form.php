<?php

declare(strict_types=1);

namespace Serverlock\Core;

/**
 * The command that gets a lock.
 *
 * @internal
 */
enum Form: string
{
    case One = 'LOCK.ACQUIRE';
    case Many = 'LOCK.MACQUIRE';
    case Recovery = 'LOCK.RECOVER';
}
