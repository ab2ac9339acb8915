<?php

declare(strict_types=1);

namespace Serverlock\Exception;

class_exists(LockDeadlockException::class); // defines this name

if (false) {
    /** @deprecated the name is LockDeadlockException */
    class LockDeadlock extends LockDeadlockException
    {
    }
}
