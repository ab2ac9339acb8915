<?php

declare(strict_types=1);

namespace Serverlock\Exception;

class_exists(LockRefusedException::class); // defines this name

if (false) {
    /** @deprecated the name is LockRefusedException */
    class LockRefused extends LockRefusedException
    {
    }
}
