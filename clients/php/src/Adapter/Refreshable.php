<?php

declare(strict_types=1);

namespace Serverlock\Adapter;

use Illuminate\Contracts\Cache\RefreshableLock;

// Laravel's contract for refresh(); the same method where Laravel is too old to have the contract.
if (interface_exists(RefreshableLock::class)) {
    /** @internal */
    interface Refreshable extends RefreshableLock
    {
    }
} else {
    /** @internal */
    interface Refreshable
    {
        /**
         * @param int|null $seconds
         * @return bool
         */
        public function refresh($seconds = null);
    }
}
