<?php

declare(strict_types=1);

namespace Serverlock\Core;

use Serverlock\Wire\Address;
use Serverlock\Wire\Connection;

/**
 * The connection of one or more session locks. One attempt at a time uses it. It is closed with its last hold, and its
 * end loses all of its locks.
 *
 * Only its holds and the attempt that uses it refer to it for long, so dropping them closes it, too.
 *
 * @internal
 */
final class Session
{
    /** How long to wait for a reply that is on its way. */
    private const GLANCE = 0.02;

    private bool $isTaken = true;
    /** When the reply to the last command is overdue. */
    private float $due = INF;
    /** @var \WeakMap<object, true> */
    private \WeakMap $holds;

    public function __construct(public readonly Address $address, public readonly Connection $connection)
    {
        $this->holds = new \WeakMap();
    }

    /** Begins its use by an attempt. Returns false if another one is using it, or that one's reply is still to come. */
    public function take(): bool
    {
        if ($this->isTaken || !$this->isOpen() || !$this->connection->settle(self::GLANCE)) {
            return false;
        }
        return $this->isTaken = true;
    }

    /**
     * Like Connection::call(), but an exception from $checkpoint leaves the connection open, and the reply is read
     * later.
     *
     * @param list<string|int|float> $words
     * @param \Closure(): void $checkpoint
     * @throws ReplyError|ConnectionLost
     */
    public function call(array $words, float $timeout, \Closure $checkpoint): mixed
    {
        $this->due = Clock::now() + $timeout;
        $this->connection->send($words, $timeout);
        return $this->connection->reply($this->due - Clock::now(), $checkpoint);
    }

    /** Adds the hold that the attempt got, and ends its use. */
    public function keep(object $hold): void
    {
        $this->holds[$hold] = true;
        $this->isTaken = false;
    }

    /** Ends its use by an attempt that failed. */
    public function giveBack(): void
    {
        $this->isTaken = false;
        $this->closeIfUnused();
    }

    /** Reads the reply to a command that was cancelled, if it arrives soon. */
    public function settle(): void
    {
        $this->connection->settle(self::GLANCE);
    }

    /** Removes a hold that has ended. */
    public function drop(object $hold): void
    {
        unset($this->holds[$hold]);
        $this->closeIfUnused();
    }

    /** @return list<object> */
    public function holds(): array
    {
        $holds = [];
        foreach ($this->holds as $hold => $_) {
            $holds[] = $hold;
        }
        return $holds;
    }

    /** Whether no attempt uses it, and no reply is still to come. */
    public function isIdle(): bool
    {
        return !$this->isTaken && $this->isOpen() && !$this->connection->isPending();
    }

    /** Notices the end of the connection. Closes it if a reply is overdue that no attempt awaits. */
    public function isOpen(): bool
    {
        if (!$this->connection->isPending()) {
            return $this->connection->isOpen();
        }
        $wasAsync = Signals::defer(); // an exception from a handler would lose what has been read
        try {
            if ($this->isTaken) {
                return $this->connection->isOpen();
            }
            if (!$this->connection->settle(0.0) && Clock::now() >= $this->due) {
                $this->connection->close();
            }
            return !$this->connection->isClosed();
        } finally {
            $wasAsync && Signals::restore();
        }
    }

    public function close(): void
    {
        $this->connection->close();
    }

    private function closeIfUnused(): void
    {
        if (!$this->isTaken && count($this->holds) === 0) {
            $this->connection->close();
        }
    }
}
