<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use Serverlock\Core\ConnectionLost;
use Serverlock\Wire\Address;
use Serverlock\Wire\Client;
use Serverlock\Wire\OverNetwork;

/** Answers calls with a test's prepared replies, in order. */
final class ScriptedClient implements Client
{
    use OverNetwork;

    /** @var list<list<string|int|float>> */
    public array $sent = [];

    /** @var null|\Closure(list<string|int|float>): void called with each */
    public ?\Closure $onCall = null;

    /** @var array<string, mixed> replies to commands that use up none of the prepared ones */
    public array $usual = [];

    /** @param list<mixed> $replies exceptions are thrown */
    public function __construct(public array $replies)
    {
    }

    public function isCluster(): bool
    {
        return false;
    }

    public function prefix(): string
    {
        return '';
    }

    public function call(string $key, array $words, float $timeout): mixed
    {
        $this->sent[] = $words;
        $this->onCall === null || ($this->onCall)($words);
        $reply = $this->usual[$words[0]] ?? array_shift($this->replies);
        return $reply instanceof \Throwable ? throw $reply : $reply;
    }

    public function address(string $key, float $timeout): Address
    {
        throw new ConnectionLost('no connections here');
    }

    public function known(): array
    {
        return [];
    }

    public function forget(): void
    {
    }

    /** @return list<string> the commands that were sent */
    public function commands(): array
    {
        return array_map(static fn (array $words): string => (string) $words[0], $this->sent);
    }
}
