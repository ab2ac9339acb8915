<?php

declare(strict_types=1);

namespace Serverlock\Laravel;

use Illuminate\Cache\CacheManager;
use Illuminate\Cache\Repository;
use Illuminate\Console\Scheduling\EventMutex as EventMutexContract;
use Illuminate\Console\Scheduling\SchedulingMutex as SchedulingMutexContract;
use Illuminate\Contracts\Container\Container;
use Illuminate\Support\ServiceProvider;

/**
 * Adds the cache driver `serverlock`, and lets the scheduler lock through it. Laravel finds this provider on its own.
 *
 * Stores of other drivers are used as before.
 */
final class ServerlockServiceProvider extends ServiceProvider
{
    public function register(): void
    {
        $this->app->singletonIf(EventMutexContract::class, EventMutex::class);
        $this->app->singletonIf(SchedulingMutexContract::class, SchedulingMutex::class);
        $this->callAfterResolving('cache', static function (CacheManager $cache): void {
            // Not static: Laravel binds it to the manager.
            $cache->extend('serverlock', function (Container $app, array $config) use ($cache): Repository {
                return $cache->repository(ServerlockStore::of($app, $config));
            });
        });
    }
}
