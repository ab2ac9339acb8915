<?php

declare(strict_types=1);

namespace Serverlock\Frameworks\Laravel;

use Illuminate\Console\Scheduling\Schedule;
use Illuminate\Foundation\Console\Kernel as ConsoleKernel;
use Serverlock\Frameworks\Work;

/** The console of an application with a schedule and two kinds of jobs. */
final class Kernel extends ConsoleKernel
{
    protected function schedule(Schedule $schedule): void
    {
        $report = $schedule->call(fn () => Work::run('report'))->name('report')->everyMinute();
        match (getenv('SERVERLOCK_SCHEDULE')) {
            'one-server' => $report->onOneServer(),
            'overlapping' => $report->withoutOverlapping(1),
            default => null,
        };
    }

    protected function commands(): void
    {
        $this->command('dispatch {job}', function (string $job): void {
            dispatch(new (__NAMESPACE__ . "\\$job")());
        });
    }
}
