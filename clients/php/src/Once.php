<?php

declare(strict_types=1);

namespace Serverlock;

use Serverlock\Core\ConnectionLost;
use Serverlock\Core\Engine;
use Serverlock\Core\Estimate;
use Serverlock\Core\Failures;
use Serverlock\Core\Hold;
use Serverlock\Core\ReplyError;
use Serverlock\Core\Request;
use Serverlock\Core\Scope;
use Serverlock\Core\Signals;
use Serverlock\Core\TickRun;
use Serverlock\Core\Ticks;
use Serverlock\Exception\LockBadArgumentException;
use Serverlock\Exception\LockException;
use Serverlock\Exception\LockRefusedException;

/** A description of work that runs once per period, in one of the processes that ask. It is reusable. */
final class Once
{
    private const LONGEST_PERIOD = 315_360_000.0;
    /** A long lease lasts until it can be corrected, even if the window ends before the grant. */
    private const SHORTEST_LONG = 1.0;

    private readonly Request $request;

    /**
     * @internal
     * @param float|null $lease null: the default
     * @param bool $reruns whether a tick runs again if its process dies
     */
    public function __construct(
        private readonly Engine $engine,
        string $key,
        private readonly float $period,
        ?float $lease,
        private readonly bool $reruns,
        LockOptions $options,
    ) {
        if (!($period >= Ticks::LEAST_PERIOD && $period <= self::LONGEST_PERIOD)) {
            $allowed = sprintf('not between %s and %s seconds', Ticks::LEAST_PERIOD, self::LONGEST_PERIOD);
            throw new LockBadArgumentException(Request::shown([$key]), "period is $period, $allowed");
        }
        $this->request = new Request([$key], $lease ?? Ticks::defaultLease($period), $options);
        if ($this->request->lease > $period / 2) {
            throw new LockBadArgumentException($this->request->name, "lease is $lease, longer than half of the period");
        }
    }

    /**
     * Calls the work with its hold, unless another process is running this tick, or has run it. Returns the outcome and
     * what the work returned.
     *
     * When the work returns, its lock is kept until the tick's window ends, halfway to the next tick, so nobody else
     * runs the tick. If the work fails, another process may run the tick, and the work's error is thrown. As with
     * Lock::run(), LockLostException is thrown if the lock was not held to the end of the work, and asking for the same
     * lock within the work is an error.
     *
     * An exception from a signal handler while the tick is being kept is thrown after that.
     *
     * @template T
     * @param callable(HeldOnce): T $work
     * @return OnceResult<T>
     * @throws LockException
     */
    public function run(callable $work): OnceResult
    {
        $held = null;
        $begin = function () use (&$held): ?HeldOnce {
            return $held = $this->begin();
        };
        $keep = fn (HeldOnce $held): bool => $this->engine->keep->keep($held->hold, $held->run);
        $value = (new Scope($this->engine, $this->request->name))->run($begin, $work, $keep);
        if ($held === null) {
            return new OnceResult(Outcome::Elsewhere);
        }
        return new OnceResult($held->recovered ? Outcome::Recovered : Outcome::Ran, $value);
    }

    /**
     * Begins to run the current tick. Returns null if another process is running it, or has run it.
     *
     * Signals are handled between two commands, and once the HeldOnce exists: until then, an exception from a handler
     * releases the lock.
     */
    private function begin(): ?HeldOnce
    {
        $this->engine->admit($this->request);
        $wasAsync = Signals::defer();
        try {
            $clock = $this->readClock();
            $wasAsync && Signals::deliver();
            $request = $this->reruns ? $this->request : $this->longRequest($clock);
            $before = $this->engine->acquire($request);
            try {
                $held = $this->held($before->hold, $clock);
                $wasAsync && Signals::deliver();
                $held->run->isLong && $this->engine->keep->correct($held->hold, $held->run);
            } catch (\Throwable $error) { // signals are still deferred
                unset($held);
                $this->giveBack($before);
                throw $error;
            }
        } catch (LockRefusedException) {
            return null;
        } finally {
            $wasAsync && !isset($held) && Signals::restore();
        }
        return $this->engine->handOver($held, $wasAsync);
    }

    private function giveBack(Held $held): void
    {
        try {
            $held->release();
        } catch (LockException) {
            // the error that ended the call is thrown
        }
    }

    private function readClock(): Estimate
    {
        try {
            $this->request->bind($this->engine->resources->client()->prefix());
            return $this->engine->serverClock->read($this->request->key());
        } catch (ReplyError | ConnectionLost $error) {
            throw Failures::typed($error, $this->request->name);
        }
    }

    /** From the start, its lease lasts until the window ends. It is never renewed. */
    private function longRequest(Estimate $clock): Request
    {
        $tick = Ticks::at($this->engine->resources->now() + $clock->offset, $this->period);
        $run = new TickRun($tick, $this->period, $clock, $this->engine->serverClock->knownMargin(), true);
        $options = new LockOptions(...['maxHold' => 0.001] + get_object_vars($this->request->options));
        $lease = max(self::SHORTEST_LONG, $run->leaseEnds() - $this->engine->resources->now());
        return new Request($this->request->keys, $lease, $options);
    }

    private function held(Hold $hold, Estimate $clock): HeldOnce
    {
        $margin = $this->engine->serverClock->marginOf($hold);
        // The server granted it between two moments. If a kept lease had to end first, its window has ended by the
        // later.
        $tick = Ticks::at($hold->granted + $clock->offset, $this->period);
        $run = new TickRun($tick, $this->period, $clock, $margin, !$this->reruns);
        $granted = $hold->sent + $clock->offset - $clock->doubt;
        return $this->engine->heldOnce($hold, $run, $run->isRecovery($hold->predecessor?->overdue, $granted));
    }
}
