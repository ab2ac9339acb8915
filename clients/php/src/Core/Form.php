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

    /** The script's function. */
    public function function(): string
    {
        return match ($this) {
            self::One => 'lock_acquire',
            self::Many => 'lock_acquire_all',
            self::Recovery => 'lock_recover',
        };
    }
}
