<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use PHPUnit\Framework\TestCase;
use Serverlock\Core\Engine;
use Serverlock\Core\Request;
use Serverlock\Held;
use Serverlock\HeldOnce;
use Serverlock\Lock;
use Serverlock\LockOptions;
use Serverlock\Locks;
use Serverlock\Once;

/** Signals whose handlers throw, at any point: a grant that never reaches the application is released. */
final class SignalTest extends TestCase
{
    private const ROUNDS = 200_000;

    /** How many handlers may still throw. */
    private int $mayThrow = 0;

    /** @var resource */
    private $sender;

    protected function setUp(): void
    {
        pcntl_async_signals(true);
        pcntl_signal(SIGUSR1, function (): void {
            if ($this->mayThrow > 0) {
                --$this->mayThrow;
                throw new \DomainException('enough');
            }
        });
        $send = 'while (posix_kill((int) $argv[1], SIGUSR1)) {
            usleep(random_int(0, 1) ? random_int(0, 4) : random_int(1, 80));
        }';
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

    /** @return array<string, array{int}> */
    public static function counts(): array
    {
        return ['one signal' => [1], 'a second one while the grant is being released' => [2]];
    }

    /** @dataProvider counts */
    public function testAnAcquireThatASignalEndsLeavesNothing(int $count): void
    {
        $this->play(function (Lock $lock) use ($count): bool {
            $held = null;
            try {
                $this->mayThrow = $count;
                $held = $lock->acquire();
                $this->mayThrow = 0;
            } catch (\DomainException) {
                $this->mayThrow = 0;
                $held?->release();
                return true;
            }
            $held->release();
            return false;
        });
    }

    /** @dataProvider counts */
    public function testAScopeThatASignalEndsLeavesNothing(int $count): void
    {
        $this->play(function (Lock $lock) use ($count): bool {
            try {
                $this->mayThrow = $count;
                $lock->run(static fn (Held $held) => $held->check());
                $this->mayThrow = 0;
            } catch (\DomainException) {
                $this->mayThrow = 0;
                return true;
            }
            return false;
        });
    }

    public function testARepeatedAcquireThatASignalEndsDoesNotCount(): void
    {
        $options = new LockOptions(reentrant: true);
        $client = new ScriptedClient([7]);
        $lock = new Lock(new Engine($client, 5.0, false, null, null), new Request(['report'], 600.0, $options));
        [$outer, $ended] = [$lock->acquire(), 0];
        for ($round = 1; $round <= self::ROUNDS; ++$round) {
            $held = null;
            try {
                $this->mayThrow = 1;
                $held = $lock->acquire();
                $this->mayThrow = 0;
            } catch (\DomainException) {
                $this->mayThrow = 0;
                ++$ended;
            }
            $held?->release();
            self::assertSame(1, $outer->hold->entries, "round $round");
        }
        self::assertGreaterThan(100, $ended, 'enough attempts were ended');
        self::assertSame(['LOCK.ACQUIRE'], $client->commands());
    }

    /** @dataProvider counts */
    public function testATickThatASignalEndsLeavesNothingOrIsKept(int $count): void
    {
        $client = new ScriptedClient([]);
        $once = new Once(new Engine($client, 5.0, false, null, null), 'report', 3600.0, null, true, new LockOptions());
        $turn = static fn () => $once->run(static fn (HeldOnce $held) => $held->check());
        $this->repeat($client, $this->interrupted($count, $turn));
    }

    public function testASingleFlightThatASignalEndsLeavesNothing(): void
    {
        $client = new ScriptedClient([]);
        $locks = new Locks($client, portable: false);
        $turn = static fn () => $locks->singleFlight('report', 30.0, static fn (Held $held): string => 'result');
        $this->repeat($client, $this->interrupted(2, $turn));
    }

    /** @return \Closure(): bool runs the turn, and says whether a signal ended it */
    private function interrupted(int $count, \Closure $turn): \Closure
    {
        return function () use ($count, $turn): bool {
            try {
                $this->mayThrow = $count;
                $turn();
                $this->mayThrow = 0;
            } catch (\DomainException) {
                $this->mayThrow = 0;
                return true;
            }
            return false;
        };
    }

    /** @param \Closure(Lock): bool $turn whether a signal ended it */
    private function play(\Closure $turn): void
    {
        $client = new ScriptedClient([]);
        $lock = new Lock(new Engine($client, 5.0, false, null, null), new Request(['report'], 30.0));
        $this->repeat($client, static fn (): bool => $turn($lock));
    }

    /** @param \Closure(): bool $turn whether a signal ended it */
    private function repeat(ScriptedClient $client, \Closure $turn): void
    {
        $client->usual = ['TIME' => [(string) time(), '0'], 'LOCK.INFO' => []];
        $ended = 0;
        for ($round = 1; $round <= self::ROUNDS; ++$round) {
            [$client->sent, $client->replies] = [[], [$round, 1, 1]];
            $ended += (int) $turn();
            $commands = $client->commands();
            $isEnded = (bool) array_intersect(['LOCK.RELEASE', 'LOCK.CANCEL', 'LOCK.EXTEND'], $commands);
            if (in_array('LOCK.ACQUIRE', $commands, true) && !$isEnded) {
                self::fail("round $round: only " . implode(', ', $commands));
            }
        }
        self::assertGreaterThan(100, $ended, 'enough attempts were ended');
        self::assertTrue(pcntl_async_signals(), 'signals are handled as before');
    }
}
