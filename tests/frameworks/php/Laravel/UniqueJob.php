<?php

declare(strict_types=1);

namespace Serverlock\Frameworks\Laravel;

use Illuminate\Contracts\Queue\ShouldBeUnique;
use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Foundation\Bus\Dispatchable;
use Illuminate\Queue\InteractsWithQueue;
use Serverlock\Frameworks\Work;

/** A job that is queued once until it has been processed. */
final class UniqueJob implements ShouldQueue, ShouldBeUnique
{
    use Dispatchable;
    use InteractsWithQueue;

    public int $tries = 0;

    public function handle(): void
    {
        Work::run('unique');
    }
}
