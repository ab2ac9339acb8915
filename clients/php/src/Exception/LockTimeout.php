<?php

declare(strict_types=1);

namespace Serverlock\Exception;

class_exists(LockTimeoutException::class); // defines this name

if (false) {
    /** @deprecated the name is LockTimeoutException */
    class LockTimeout extends LockTimeoutException
    {
    }
}
