<?php

declare(strict_types=1);

namespace Serverlock\Exception;

class_exists(LockUnavailableException::class); // defines this name

if (false) {
    /** @deprecated the name is LockUnavailableException */
    class LockUnavailable extends LockUnavailableException
    {
    }
}
