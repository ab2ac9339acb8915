<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use Serverlock\Core\Clock;
use Serverlock\Core\ConnectionLost;
use Serverlock\Wire\Address;
use Serverlock\Wire\Client;
use Serverlock\Wire\OverNetwork;

/** A server that grants every lock. When it starts, a daily tick begins. It records when the lease ends. */
final class TickServer implements Client
{
    use OverNetwork;

    public const DAY = 86_400.0;
    /** Begins at the start. */
    public const TICK = 20_833;

    public float $margin = 1.0;
    public bool $isCluster = false;
    /** How far its clock is ahead of the local one. */
    public float $ahead;
    /** When the lease ends by its clock, with the margin. */
    public float $leaseEnds = 0.0;
    /** @var list<list<string|int|float>> */
    public array $sent = [];
    /** @var array<string, list<mixed>> replies to a command instead of the usual ones; exceptions are thrown */
    public array $replies = [];
    /** @var array<string, list<float>> how long the next replies to a command take */
    public array $takes = [];
    /** @var array<string, \Closure(): mixed> called when the command has arrived, before it is carried out */
    public array $before = [];

    public function __construct()
    {
        MovedClock::by();
        $this->ahead = self::TICK * self::DAY - Clock::now();
    }

    public function isCluster(): bool
    {
        return $this->isCluster;
    }

    public function prefix(): string
    {
        return '';
    }

    public function call(string $key, array $words, float $timeout): mixed
    {
        $command = (string) $words[0];
        $this->sent[] = $words;
        isset($this->before[$command]) && ($this->before[$command])();
        $takes = isset($this->takes[$command]) ? array_shift($this->takes[$command]) ?? 0.0 : 0.0;
        MovedClock::by($takes / 2);
        $reply = ($this->replies[$command] ?? []) ? array_shift($this->replies[$command]) : $this->usual($words);
        MovedClock::by($takes / 2);
        return $reply instanceof \Throwable ? throw $reply : $reply;
    }

    /** @param list<string|int|float> $words */
    private function usual(array $words): mixed
    {
        $now = Clock::now() + $this->ahead;
        switch ($words[0]) {
            case 'TIME':
                return [(string) (int) $now, (string) (int) (fmod($now, 1) * 1e6)];
            case 'LOCK.INFO':
                return ['state', 'held', 'lease-ms', 5000, 'free-in-ms', 5001 + (int) ($this->margin * 1000)];
            case 'LOCK.ACQUIRE':
            case 'LOCK.EXTEND':
                $this->leaseEnds = $now + $words[array_search('PX', $words, true) + 1] / 1000 + $this->margin;
                break;
            case 'LOCK.RELEASE':
                $this->leaseEnds = 0.0;
        }
        return 1;
    }

    /** Whether the lease ends with the window of its tick. */
    public function isKept(): bool
    {
        $late = $this->leaseEnds - (self::TICK + 0.5) * self::DAY;
        return $late >= -0.002 && $late <= 0.7;
    }

    public function count(string $command): int
    {
        return count(array_keys($this->commands(), $command, true));
    }

    /** @return list<string> the commands that were sent */
    public function commands(): array
    {
        return array_map(static fn (array $words): string => (string) $words[0], $this->sent);
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
}
