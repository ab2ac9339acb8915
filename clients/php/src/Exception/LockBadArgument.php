<?php

declare(strict_types=1);

namespace Serverlock\Exception;

class_exists(LockBadArgumentException::class); // defines this name

if (false) {
    /** @deprecated the name is LockBadArgumentException */
    class LockBadArgument extends LockBadArgumentException
    {
    }
}
