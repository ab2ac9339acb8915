<?php

declare(strict_types=1);

namespace Serverlock\Exception;

class_exists(LockLostException::class); // defines this name

if (false) {
    /** @deprecated the name is LockLostException */
    class LockLost extends LockLostException
    {
    }
}
