<?php

declare(strict_types=1);

namespace Serverlock\Exception;

class_exists(LockNoServerException::class); // defines this name

if (false) {
    /** @deprecated the name is LockNoServerException */
    class LockNoServer extends LockNoServerException
    {
    }
}
