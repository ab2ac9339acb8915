<?php

declare(strict_types=1);

namespace Serverlock\Testing;

use Serverlock\Core\ConnectionLost;
use Serverlock\Wire\Connection;

/**
 * A dedicated connection to a Server.
 *
 * @internal
 */
final class MemoryConnection implements Connection
{
    private bool $isOpen = true;
    /** @var list<string|int|float>|null the command whose reply is still to be read */
    private ?array $sent = null;

    public function __construct(private readonly Memory $memory)
    {
    }

    public function call(array $words, float $timeout, ?\Closure $checkpoint = null): mixed
    {
        $this->send($words, $timeout);
        return $this->reply($timeout, $checkpoint);
    }

    public function send(array $words, float $timeout): void
    {
        if (!$this->isOpen) {
            throw new ConnectionLost('the connection is closed');
        }
        $this->sent = $words;
    }

    public function reply(float $timeout, ?\Closure $checkpoint = null): mixed
    {
        [$words, $this->sent] = [$this->sent, null];
        return (new Commands($this->memory))->call((array) $words, $this);
    }

    public function isPending(): bool
    {
        return $this->sent !== null;
    }

    public function settle(float $timeout): bool
    {
        return $this->isOpen;
    }

    public function isOpen(): bool
    {
        return $this->isOpen;
    }

    public function isClosed(): bool
    {
        return !$this->isOpen;
    }

    public function close(): void
    {
        if ($this->isOpen) {
            $this->isOpen = false;
            $this->memory->disconnect($this);
        }
    }

    public function __destruct()
    {
        $this->close(); // as a stream is closed with its last reference
    }
}
