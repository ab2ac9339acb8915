<?php

declare(strict_types=1);

namespace Serverlock\Frameworks;

/** Symfony's lock and semaphore in processes of their own, with the DSN `serverlock://`. */
final class SymfonyTest extends FrameworkTestCase
{
    /** @return array<string, array{string}> parameters of the DSN */
    public static function clients(): array
    {
        return ['phpredis' => [''], 'predis' => ['&class=Predis\Client']];
    }

    private function worker(
        string $kind,
        int $ttl,
        string $parameters = '',
        int $limit = 2,
        ?string $dsn = null,
    ): Process {
        $dsn ??= "serverlock://127.0.0.1:{$this->server->port}/0?ttl=$ttl&wait=600$parameters";
        $environment = ['LOCK_DSN' => $dsn, 'SEMAPHORE_LIMIT' => (string) $limit];
        return $this->start([__DIR__ . '/Symfony/work.php', $kind, (string) $ttl], $environment);
    }

    /** @dataProvider clients */
    public function testOneProcessWorksAtATime(string $parameters): void
    {
        $workers = [];
        for ($count = 0; $count < 3; ++$count) {
            $workers[] = $this->worker('lock', 300, $parameters);
        }
        $this->eventually('two wait', fn (): bool => $this->server->info('report')['waiters'] === 2);
        self::assertSame(['report begins'], $this->log());
        $this->end('report');
        array_map($this->ends(...), $workers);
        self::assertSame(array_merge(...array_fill(0, 3, ['report begins', 'report ends'])), $this->log());
    }

    public function testWithoutACommonLockTheyWorkAtTheSameTime(): void
    {
        $this->worker('lock', 300, dsn: 'in-memory');
        $this->worker('lock', 300, dsn: 'in-memory');
        $this->logBecomes(['report begins', 'report begins']);
    }

    /** @dataProvider clients */
    public function testAnotherProcessGoesOnAfterOneWasKilled(string $parameters): void
    {
        $first = $this->worker('lock', 3, $parameters);
        $this->logBecomes(['report begins']);
        $this->worker('lock', 3, $parameters);
        $first->kill();
        $this->logBecomes(['report begins', 'report begins']); // after the lock's 3 s and the margin
        $this->end('report');
        $this->logBecomes(['report begins', 'report begins', 'report ends']);
    }

    /** @dataProvider clients */
    public function testASemaphoreHasItsPlacesAndGetsThemBackFromAKilledProcess(string $parameters): void
    {
        $first = $this->worker('semaphore', 60, $parameters);
        $this->logBecomes(['report begins']);
        $second = $this->worker('semaphore', 600, $parameters);
        $this->logBecomes(['report begins', 'report begins']);
        $third = $this->worker('semaphore', 600, $parameters);
        $this->eventually('the third is refused', fn (): bool => (int) $this->redis->get('refused') > 1);
        self::assertCount(2, $this->log());
        $first->kill();
        $this->logBecomes(['report begins', 'report begins', 'report begins']);
        $this->end('report');
        $this->ends($second);
        $this->ends($third);
        self::assertSame('free', $this->server->info('reports')['state']);
    }

    public function testWithAnotherLimitTheThirdWorksAsWell(): void
    {
        for ($count = 0; $count < 3; ++$count) {
            $this->worker('semaphore', 600, limit: 3);
        }
        $this->logBecomes(['report begins', 'report begins', 'report begins']);
    }
}
