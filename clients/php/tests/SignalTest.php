<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use PHPUnit\Framework\TestCase;
use Serverlock\Core\Engine;
use Serverlock\Core\Request;
use Serverlock\Held;
use Serverlock\Lock;

/** Signals whose handlers throw, at any point: a grant that the application does not get to see is given back. */
final class SignalTest extends TestCase
{
    private const ROUNDS = 200_000;

    private bool $mayThrow = false;

    /** @var resource */
    private $sender;

    protected function setUp(): void
    {
        pcntl_async_signals(true);
        pcntl_signal(SIGUSR1, function (): void {
            if ($this->mayThrow) {
                $this->mayThrow = false;
                throw new \DomainException('enough');
            }
        });
        $send = 'while (posix_kill((int) $argv[1], SIGUSR1)) { usleep(random_int(1, 80)); }';
        $sender = proc_open([PHP_BINARY, '-r', $send, (string) getmypid()], [], $pipes);
        self::assertNotFalse($sender);
        $this->sender = $sender;
    }

    protected function tearDown(): void
    {
        proc_terminate($this->sender, SIGKILL);
        proc_close($this->sender);
        pcntl_signal(SIGUSR1, SIG_DFL);
        pcntl_async_signals(false);
    }

    public function testAnAcquireThatASignalEndsLeavesNothing(): void
    {
        $this->play(function (Lock $lock): bool {
            $held = null;
            try {
                $this->mayThrow = true;
                $held = $lock->acquire();
                $this->mayThrow = false;
            } catch (\DomainException) {
                $held?->release();
                return true;
            }
            $held->release();
            return false;
        });
    }

    public function testAScopeThatASignalEndsLeavesNothing(): void
    {
        $this->play(function (Lock $lock): bool {
            try {
                $this->mayThrow = true;
                $lock->run(static fn (Held $held) => $held->check());
                $this->mayThrow = false;
            } catch (\DomainException) {
                return true;
            }
            return false;
        });
    }

    /** @param \Closure(Lock): bool $turn whether a signal ended it */
    private function play(\Closure $turn): void
    {
        $client = new ScriptedClient([]);
        $lock = new Lock(new Engine($client, 5.0, false, null, null), new Request(['report'], 30.0));
        $ended = 0;
        for ($round = 1; $round <= self::ROUNDS; ++$round) {
            [$client->sent, $client->replies] = [[], [$round, 1, 1]];
            $ended += (int) $turn($lock);
            $commands = $client->commands();
            if (in_array('LOCK.ACQUIRE', $commands, true) && !array_intersect(['LOCK.RELEASE', 'LOCK.CANCEL'], $commands)) {
                self::fail("round $round: only " . implode(', ', $commands));
            }
        }
        self::assertGreaterThan(100, $ended, 'enough of them were ended');
        self::assertTrue(pcntl_async_signals(), 'signals are handled as they were before');
    }
}
