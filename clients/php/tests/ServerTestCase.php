<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use PHPUnit\Framework\TestCase;

/** Tests that start servers. */
abstract class ServerTestCase extends TestCase
{
    /** @var list<Server> */
    private array $servers = [];

    protected function server(bool $hasModule = true, string ...$options): Server
    {
        return $this->servers[] = new Server($hasModule, ...$options);
    }

    protected function tearDown(): void
    {
        foreach ($this->servers as $server) {
            $server->end();
        }
        $this->servers = [];
    }

    /** @return array<string, array{string}> */
    public static function libraries(): array
    {
        return ['phpredis' => ['phpredis'], 'predis' => ['predis']];
    }

    /** @param callable(): bool $condition */
    protected static function until(string $what, callable $condition, float $seconds = 10): void
    {
        $end = hrtime(true) + $seconds * 1e9;
        while (!$condition()) {
            if (hrtime(true) > $end) {
                self::fail("not within $seconds s: $what");
            }
            usleep(10_000);
        }
    }

    /**
     * The exception of this type that the call throws.
     *
     * @template T of \Throwable
     * @param class-string<T> $type
     * @return T
     */
    protected static function thrown(string $type, callable $call): \Throwable
    {
        try {
            $call();
        } catch (\Throwable $error) {
            self::assertInstanceOf($type, $error, (string) $error);
            return $error;
        }
        self::fail("no $type");
    }
}
