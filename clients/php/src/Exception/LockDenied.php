<?php

declare(strict_types=1);

namespace Serverlock\Exception;

class_exists(LockDeniedException::class); // defines this name

if (false) {
    /** @deprecated the name is LockDeniedException */
    class LockDenied extends LockDeniedException
    {
    }
}
