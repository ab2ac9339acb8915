<?php

declare(strict_types=1);

namespace Serverlock\Exception;

class_exists(LockMisuseException::class); // defines this name

if (false) {
    /** @deprecated the name is LockMisuseException */
    class LockMisuse extends LockMisuseException
    {
    }
}
