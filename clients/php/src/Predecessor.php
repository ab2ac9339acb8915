<?php

declare(strict_types=1);

namespace Serverlock;

/** A holder that never released its lock: its work may be half done. */
final class Predecessor
{
    /**
     * @param float $overdue how many seconds ago its lock had expired
     * @param int|null $token null after a client of the classic pattern, which has no tokens
     */
    public function __construct(
        public readonly float $overdue,
        public readonly ?int $token,
        public readonly ?string $owner,
    ) {
    }
}
