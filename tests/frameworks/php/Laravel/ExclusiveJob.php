<?php

declare(strict_types=1);

namespace Serverlock\Frameworks\Laravel;

use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Foundation\Bus\Dispatchable;
use Illuminate\Queue\InteractsWithQueue;
use Illuminate\Queue\Middleware\WithoutOverlapping;
use Serverlock\Frameworks\Work;

/** A job of which one runs at a time. Its lock ends 2 s after the start, or when it ends. */
final class ExclusiveJob implements ShouldQueue
{
    use Dispatchable;
    use InteractsWithQueue;

    public int $tries = 0;

    /** @return list<WithoutOverlapping> */
    public function middleware(): array
    {
        return getenv('SERVERLOCK_UNLOCKED') ? [] : [(new WithoutOverlapping('report', 1, 2))];
    }

    public function handle(): void
    {
        Work::run('exclusive');
    }
}
