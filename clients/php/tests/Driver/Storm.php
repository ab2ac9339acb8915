<?php

declare(strict_types=1);

namespace Serverlock\Tests\Driver;

use Serverlock\Core\Engine;
use Serverlock\Exception\LockRefusedException;
use Serverlock\Locks;

/**
 * Attempts, one after another, that a timer's signal handler ends at random moments. Other processes that want the same
 * locks are not disturbed.
 */
final class Storm
{
    private const OTHERS = 3;
    private const C = <<<'C'
        struct timeval { long tv_sec; long tv_usec; };
        struct itimerval { struct timeval it_interval; struct timeval it_value; };
        int setitimer(int which, const struct itimerval *value, struct itimerval *old);
        C;

    private readonly \FFI $libc;
    private bool $mayThrow = false;
    /** @var array{granted: int, cancelled: int, refused: int, failed: list<string>} */
    private array $tally = ['granted' => 0, 'cancelled' => 0, 'refused' => 0, 'failed' => []];

    /**
     * @param array{Locks, array<string, mixed>} $opened
     * @param array<string, mixed> $order
     */
    public function __construct(
        private readonly string $client,
        private readonly array $opened,
        private readonly array $order,
    ) {
        $this->libc = \FFI::cdef(self::C);
    }

    public static function isPossible(): bool
    {
        return extension_loaded('ffi') && function_exists('pcntl_signal');
    }

    /**
     * Counts what this process's managers keep.
     *
     * @param array<string, Locks> $managers
     * @return array<string, int>
     */
    public static function census(array $managers): array
    {
        $found = ['scopes' => 0, 'owed' => 0, 'sessions' => 0];
        foreach ($managers as $locks) {
            $engine = (fn (): Engine => $this->engine)->call($locks);
            $engine->resources->debts->settle(); // as a later call to the manager does
            $kept = (fn (): array => [
                count($this->scopes), count($this->resources->debts), count($this->resources->sessions),
            ])->call($engine);
            foreach (array_keys($found) as $at => $name) {
                $found[$name] += $kept[$at];
            }
        }
        return $found;
    }

    /** @return array<string, mixed> */
    public function play(): array
    {
        $others = [];
        for ($number = 0; $number < self::OTHERS; ++$number) {
            $others[] = $this->beside();
        }
        pcntl_signal(SIGALRM, function (): void {
            if ($this->mayThrow) {
                throw new Cancelled('cancelled');
            }
        });
        for ($turn = 0; $turn < $this->order['attempts']; ++$turn) {
            try {
                $this->attempt();
                ++$this->tally['granted'];
            } catch (Cancelled) {
                $this->mayThrow = false;
                ++$this->tally['cancelled'];
            }
        }
        foreach ($others as $other) {
            posix_kill($other, SIGTERM);
            while (pcntl_waitpid($other, $status) === -1) {
                // a signal arrived
            }
            if (pcntl_wtermsig($status) !== SIGKILL) {
                $this->tally['failed'][] = "another process ended with $status";
            }
        }
        return $this->tally;
    }

    private function attempt(): void
    {
        $moment = $this->order['within_ms'] / 1000 * (random_int(0, 1_000_000) / 1e6) ** 3;
        if (random_int(0, 3) === 0) {
            $moment -= fmod($moment, 0.005);
        }
        $attempt = $this->prepare($this->opened[0]);
        $timer = $this->timer(max(1e-5, $moment));
        try {
            $this->mayThrow = true;
            $this->libc->setitimer(0, $timer, null);
            $attempt();
            $this->mayThrow = false;
        } catch (Cancelled $cancelled) {
            throw $cancelled;
        } catch (LockRefusedException) {
            $this->mayThrow = false;
            ++$this->tally['refused'];
            --$this->tally['granted'];
        } catch (\Throwable $error) {
            $this->mayThrow = false;
            $this->tally['failed'][] = (string) $error;
            --$this->tally['granted'];
        }
    }

    /** Builds all objects before a signal can arrive, because PHP itself does not survive one everywhere. */
    private function timer(float $after): \FFI\CData
    {
        $timer = $this->libc->new('struct itimerval[1]');
        $timer[0]->it_value->tv_sec = (int) $after;
        $timer[0]->it_value->tv_usec = max(1, (int) (fmod($after, 1) * 1e6));
        return $timer;
    }

    /** @return \Closure(): mixed one attempt, for a random key */
    private function prepare(Locks $locks): \Closure
    {
        $order = ['key' => $this->order['among'][array_rand($this->order['among'])]] + $this->order;
        if ($order['single_flight'] ?? false) {
            return Described::singleFlight($locks, $order, static fn (): string => 'result');
        }
        $lock = Described::lock($locks, $order);
        $nothing = static fn () => null;
        return static fn (): mixed => $lock->run($nothing);
    }

    /** A process that wants the same locks, until SIGTERM. */
    private function beside(): int
    {
        $goesOn = true; // before the fork, because the signal may arrive before the child runs
        pcntl_signal(SIGTERM, static function () use (&$goesOn): void {
            $goesOn = false;
        });
        $child = pcntl_fork();
        if ($child !== 0) {
            pcntl_signal(SIGTERM, SIG_DFL);
            return $child;
        }
        try {
            [, $locks] = Libraries::open($this->client, $this->opened[1], null);
            while ($goesOn) {
                try {
                    ($this->prepare($locks))();
                } catch (LockRefusedException) {
                    // and again
                }
            }
            posix_kill((int) getmypid(), SIGKILL); // does not close the parent's connections
        } catch (\Throwable $error) {
            fwrite(STDERR, (string) $error);
        }
        exit(1);
    }
}
