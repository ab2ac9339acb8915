<?php

declare(strict_types=1);

namespace Serverlock;

/** The current leader; both are null while there is none. */
final class Leadership
{
    public function __construct(public readonly ?int $token, public readonly ?string $owner)
    {
    }
}
