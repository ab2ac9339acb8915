<?php

declare(strict_types=1);

namespace Serverlock\Frameworks;

use Serverlock\Tests\Server;
use Serverlock\Tests\ServerTestCase;

/** Tests that run an application's processes, and kill them. */
abstract class FrameworkTestCase extends ServerTestCase
{
    /** Far more than anything takes on a busy machine. */
    private const DEADLINE = 200.0;

    protected Server $server;
    protected \Redis $redis;
    protected string $folder;
    /** @var list<Process> */
    private array $processes = [];

    protected function setUp(): void
    {
        $this->server = $this->server();
        $this->redis = $this->server->connect();
        $this->folder = sys_get_temp_dir() . '/serverlock-application-' . getmypid() . "-{$this->server->port}";
        mkdir($this->folder);
    }

    protected function tearDown(): void
    {
        foreach ($this->processes as $process) {
            $process->kill();
        }
        if (!$this->hasFailed()) {
            exec('rm -rf ' . escapeshellarg($this->folder));
        }
        parent::tearDown();
    }

    /**
     * Starts a PHP program of an application.
     *
     * @param list<string> $arguments
     * @param array<string, string> $environment
     */
    protected function start(array $arguments, array $environment): Process
    {
        $own = ['SERVERLOCK_PORT' => (string) $this->server->port, 'SERVERLOCK_APP' => $this->folder];
        $process = new Process([PHP_BINARY, ...$arguments], $environment + $own + getenv(), "$this->folder/log");
        return $this->processes[] = $process;
    }

    /** Waits until the process has ended, which it must do without an error. */
    protected function ends(Process $process): void
    {
        $this->eventually('the process ends', fn (): bool => $process->status() !== null);
        self::assertFalse($process->hasFailed(), $this->output());
    }

    protected function output(): string
    {
        return (string) @file_get_contents("$this->folder/log");
    }

    /** @return list<string> what the work has reported so far */
    protected function log(): array
    {
        return $this->redis->lRange('log', 0, -1);
    }

    /** @param list<string> $expected */
    protected function logBecomes(array $expected): void
    {
        $this->eventually('the log becomes ' . json_encode($expected), fn (): bool => $this->log() === $expected);
        self::assertSame($expected, $this->log());
    }

    /** From now on the work ends. */
    protected function end(string $work): void
    {
        $this->redis->set("end $work", '1');
    }

    /** @param callable(): bool $condition */
    protected function eventually(string $what, callable $condition): void
    {
        $end = hrtime(true) + self::DEADLINE * 1e9;
        while (!$condition()) {
            $failed = array_filter($this->processes, fn (Process $process): bool => $process->hasFailed());
            if ($failed !== [] || hrtime(true) > $end) {
                self::fail("never: $what; the log is " . json_encode($this->log()) . '; ' . $this->output());
            }
            usleep(20_000);
        }
    }
}
