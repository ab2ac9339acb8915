<?php

declare(strict_types=1);

namespace Serverlock\Frameworks;

/** Laravel's scheduler and queue in processes of their own, with the cache driver `serverlock`. */
final class LaravelTest extends FrameworkTestCase
{
    private string $client = 'phpredis';

    protected function setUp(): void
    {
        parent::setUp();
        foreach (['bootstrap', 'bootstrap/cache', 'config', 'vendor', 'vendor/composer', 'storage'] as $folder) {
            mkdir("$this->folder/$folder");
        }
        foreach (['app', 'cache', 'database', 'queue', 'logging'] as $part) {
            $source = '<?php return (require ' . var_export(__DIR__ . '/Laravel/config.php', true) . ")['$part'];\n";
            file_put_contents("$this->folder/config/$part.php", $source);
        }
        // The provider is found as in an application that has installed the package.
        $package = json_decode((string) file_get_contents(__DIR__ . '/../../../clients/php/composer.json'), true);
        $installed = json_encode(['packages' => [$package]]);
        file_put_contents("$this->folder/vendor/composer/installed.json", $installed);
        file_put_contents("$this->folder/composer.json", '{}');
    }

    /**
     * @param list<string> $arguments
     * @param array<string, string> $environment
     */
    private function artisan(array $arguments, array $environment = []): Process
    {
        $environment += [
            'SERVERLOCK_STORE' => 'serverlock',
            'SERVERLOCK_CLIENT' => $this->client,
        ];
        return $this->start([__DIR__ . '/Laravel/artisan.php', ...$arguments, '--no-ansi'], $environment);
    }

    private function scheduler(string $schedule, string $store = 'serverlock', string $minute = '10:00'): Process
    {
        return $this->artisan(['schedule:run'], [
            'SERVERLOCK_SCHEDULE' => $schedule,
            'SERVERLOCK_STORE' => $store,
            'SERVERLOCK_NOW' => "2026-03-02 $minute:00",
        ]);
    }

    private function worker(string $unlocked = ''): Process
    {
        $environment = ['SERVERLOCK_UNLOCKED' => $unlocked];
        return $this->artisan(['queue:work', '--sleep=0.1', '--tries=0', '--timeout=0'], $environment);
    }

    /** @dataProvider libraries */
    public function testAnEventOnOneServerRunsOncePerMinute(string $library): void
    {
        $this->client = $library;
        $schedulers = [$this->scheduler('one-server'), $this->scheduler('one-server'), $this->scheduler('one-server')];
        $this->logBecomes(['report begins']);
        $this->eventually('the others skip it', function () use ($schedulers): bool {
            return count(array_filter($schedulers, fn (Process $one): bool => $one->status() === null)) === 1;
        });
        $this->end('report');
        $this->logBecomes(['report begins', 'report ends']);
        $this->ends($this->scheduler('one-server')); // late, because its clock is behind
        self::assertCount(2, $this->log());
        $this->ends($this->scheduler('one-server', minute: '10:01'));
        self::assertCount(4, $this->log(), 'it runs again in the next minute');
    }

    public function testTheNextMinuteOfAKilledSchedulerRunsElsewhere(): void
    {
        $first = $this->scheduler('one-server');
        $this->logBecomes(['report begins']);
        $first->kill();
        $this->ends($this->scheduler('one-server'));
        self::assertSame(['report begins'], $this->log(), 'its minute does not run again');
        $this->end('report');
        $this->ends($this->scheduler('one-server', minute: '10:01'));
        self::assertSame(['report begins', 'report begins', 'report ends'], $this->log());
    }

    public function testWithoutACommonLockEachServerRunsIt(): void
    {
        $schedulers = [$this->scheduler('one-server', 'array'), $this->scheduler('one-server', 'array')];
        $this->logBecomes(['report begins', 'report begins']);
        $this->end('report');
        array_map($this->ends(...), $schedulers);
    }

    public function testAnEventDoesNotOverlapAndALaterOneRuns(): void
    {
        $first = $this->scheduler('overlapping');
        $this->logBecomes(['report begins']);
        $this->ends($this->scheduler('overlapping', minute: '10:01'));
        self::assertSame(['report begins'], $this->log());
        $this->end('report');
        $this->ends($first);
        $this->ends($this->scheduler('overlapping', minute: '10:02'));
        self::assertCount(4, $this->log());
    }

    public function testWithoutACommonLockEventsOverlap(): void
    {
        $this->scheduler('overlapping', 'array');
        $this->scheduler('overlapping', 'array');
        $this->logBecomes(['report begins', 'report begins']);
    }

    /** @return array<string, array{string, float}> the store, and for how long at least the lock outlives its holder */
    public static function stores(): array
    {
        return ['with sessions' => ['sessions', 0.0], 'without sessions' => ['serverlock', 50.0]];
    }

    /** @dataProvider stores */
    public function testAnotherSchedulerGoesOnAfterOneWasKilled(string $store, float $atLeast): void
    {
        $first = $this->scheduler('overlapping', $store);
        $this->logBecomes(['report begins']);
        $since = hrtime(true);
        $first->kill();
        $this->end('report'); // of the next one
        $minute = 0;
        $this->eventually('another scheduler runs it', function () use ($store, &$minute): bool {
            $this->ends($this->scheduler('overlapping', $store, sprintf('11:%02d', $minute++)));
            return $this->log() === ['report begins', 'report begins', 'report ends'];
        });
        self::assertGreaterThanOrEqual($atLeast, (hrtime(true) - $since) / 1e9);
    }

    public function testAnEventLeavesALockThatAnotherProcessHasAlone(): void
    {
        $first = $this->scheduler('overlapping');
        $this->logBecomes(['report begins']);
        [$key] = $this->redis->keys('app:reports:*');
        self::assertSame(1, $this->redis->rawCommand('LOCK.RELEASE', $key, $this->server->info($key)['token']));
        $token = $this->redis->rawCommand('LOCK.ACQUIRE', $key, 'PX', 600_000);
        $this->end('report');
        $this->ends($first);
        self::assertSame($token, $this->server->info($key)['token']);
    }

    /** @dataProvider libraries */
    public function testAUniqueJobIsQueuedOnceAndOutlivesItsWorker(string $library): void
    {
        $this->client = $library;
        $first = $this->worker();
        $this->ends($this->artisan(['dispatch', 'UniqueJob']));
        $this->logBecomes(['unique begins']);
        $this->ends($this->artisan(['dispatch', 'UniqueJob']));
        self::assertSame(0, $this->redis->lLen('app:queues:default'), 'it was queued a second time');
        $first->kill();
        $second = $this->worker();
        $this->logBecomes(['unique begins', 'unique begins']); // after retry_after
        $this->ends($this->artisan(['dispatch', 'UniqueJob']));
        self::assertSame(0, $this->redis->lLen('app:queues:default'), 'it was queued a second time');
        $second->kill();
        $this->worker();
        $this->end('unique');
        $this->logBecomes(['unique begins', 'unique begins', 'unique begins', 'unique ends']);
        $this->eventually('its lock is free', fn (): bool => $this->redis->keys('*laravel_unique_job*') === []);
        $this->ends($this->artisan(['dispatch', 'UniqueJob']));
        $this->eventually('it runs again', fn (): bool => count($this->log()) === 6);
    }

    public function testWithoutACommonLockAUniqueJobIsQueuedTwice(): void
    {
        foreach (['array', 'array'] as $store) {
            $this->ends($this->artisan(['dispatch', 'UniqueJob'], ['SERVERLOCK_STORE' => $store]));
        }
        self::assertSame(2, $this->redis->lLen('app:queues:default'));
    }

    public function testOfExclusiveJobsOneRunsAndAnotherWorkerGoesOn(): void
    {
        $first = $this->worker();
        $this->ends($this->artisan(['dispatch', 'ExclusiveJob']));
        $this->logBecomes(['exclusive begins']);
        $first->kill();
        $this->worker();
        $this->worker();
        $this->ends($this->artisan(['dispatch', 'ExclusiveJob']));
        $this->logBecomes(['exclusive begins', 'exclusive begins']); // after the lock's 2 s and the margin
        $this->end('exclusive');
        $after = ['exclusive begins', 'exclusive begins', 'exclusive ends', 'exclusive begins', 'exclusive ends'];
        $this->logBecomes($after);
    }

    public function testWithoutTheMiddlewareJobsOverlap(): void
    {
        $this->worker('1');
        $this->worker('1');
        $this->ends($this->artisan(['dispatch', 'ExclusiveJob']));
        $this->ends($this->artisan(['dispatch', 'ExclusiveJob']));
        $this->logBecomes(['exclusive begins', 'exclusive begins']);
    }
}
