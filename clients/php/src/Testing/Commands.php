<?php

declare(strict_types=1);

namespace Serverlock\Testing;

use Serverlock\Core\ReplyError;

/**
 * The commands of a Server: LOCK.*, TIME, WAIT, and the script of Held::fenced(), but not the command in it.
 *
 * @internal
 */
final class Commands
{
    private const LONGEST_RESULT = 65_536;
    private const TOO_LONG = 'ERR result is longer than %d bytes, the limit lock.result-max';

    public function __construct(private readonly Memory $memory)
    {
    }

    /**
     * Carries out a command. If an ACQUIRE waits, time passes.
     *
     * @param list<string|int|float> $words
     * @throws ReplyError
     */
    public function call(array $words, ?object $connection = null): mixed
    {
        $name = strtoupper((string) array_shift($words));
        if (!preg_match('/^LOCK\.(M?)(ACQUIRE|RECOVER|EXTEND|RELEASE|CHECK|CANCEL|INFO)$/', $name, $found)) {
            return $this->other($name, $words);
        }
        $count = $found[1] === 'M' ? (int) array_shift($words) : 1;
        $keys = array_map(strval(...), array_splice($words, 0, $count));
        return match ($found[2]) {
            'ACQUIRE', 'RECOVER' => $this->acquire(new Ask($keys, $words, $found[2] === 'RECOVER', $connection)),
            'EXTEND' => $this->extend($keys, (int) array_shift($words), Clock::ticks($words[1] / 1000)),
            'RELEASE' => $this->release($keys, (int) $words[0], isset($words[2]) ? (string) $words[2] : null),
            'CHECK' => $this->check($keys[0], (int) $words[0]),
            'CANCEL' => $this->cancel($keys[0], (string) $words[0]),
            default => $this->info($keys[0]),
        };
    }

    /**
     * @param list<string|int|float> $words
     * @throws ReplyError
     */
    private function other(string $name, array $words): mixed
    {
        if ($name === 'EVAL') {
            if ($this->check((string) $words[2], (int) $words[4]) === 0) {
                return ['LOCK.LOST'];
            }
            throw new ReplyError("MISCONF a server in memory has no $words[5]"); // ERR: the module would seem missing
        }
        $micros = $this->memory->clock->micros();
        return match ($name) {
            'TIME' => [(string) intdiv($micros, 1_000_000), (string) ($micros % 1_000_000)],
            'WAIT' => 0,
            default => throw new ReplyError("ERR unknown command '$name': this server is in memory"),
        };
    }

    private function acquire(Ask $ask): mixed
    {
        $this->memory->allow($ask->keys);
        $grant = $this->again($ask);
        if ($grant === null && $this->isFree($ask)) {
            $grant = $this->memory->grant($ask);
        } elseif ($grant === null && $ask->wait > 0) {
            $grant = $this->memory->await($ask);
        }
        if (is_string($grant)) {
            return [$grant];
        }
        if ($grant === null || !$ask->hasDetails) {
            return $grant?->token;
        }
        $before = $grant->predecessor;
        $overdue = $before === null ? null : (int) ($before->overdue * 1000);
        return [$grant->token, $overdue, $before?->token, $before?->owner];
    }

    private function isFree(Ask $ask): bool
    {
        if (!$ask->isRecovery) {
            return $this->memory->isGrantable($ask);
        }
        $key = $this->memory->key($ask->keys[0]);
        $now = $this->memory->now();
        return !$key->held($now) && $key->expired($now) !== null && !$this->memory->waiting($ask->keys);
    }

    /** The grant that the attempt has already. */
    private function again(Ask $ask): ?Grant
    {
        $now = $this->memory->now();
        $find = static fn (Key $key): ?Grant => $key->heldBy($ask->id, $now);
        $grants = array_map($find, $this->memory->keys($ask->keys));
        foreach ($grants as $grant) {
            if ($grant === null || $grant !== $grants[0]) {
                return null;
            }
        }
        $grants[0]->ask = $ask;
        $this->memory->lease($grants[0], $ask->lease);
        return $grants[0];
    }

    /** @param list<string> $names */
    private function extend(array $names, int $token, int $lease): int
    {
        $this->memory->allow($names);
        $now = $this->memory->now();
        $grants = array_map(static fn (Key $key): ?Grant => $key->find($token), $this->memory->keys($names));
        foreach ($grants as $grant) {
            if ($grant === null || $grant->freeAt <= $now) {
                return 0;
            }
        }
        foreach ($grants as $grant) {
            $grant->expire($now, $now);
            $this->memory->lease($grant, $lease);
        }
        return 1;
    }

    /**
     * For several keys: on how many of them the grant was in force.
     *
     * @param list<string> $names
     * @throws ReplyError
     */
    private function release(array $names, int $token, ?string $result): int
    {
        if (strlen((string) $result) > self::LONGEST_RESULT) {
            throw new ReplyError(sprintf(self::TOO_LONG, self::LONGEST_RESULT));
        }
        $replies = [];
        foreach ($names as $name) {
            $grant = $this->memory->key($name)->find($token);
            if ($grant === null) {
                $replies[] = 0;
                continue;
            }
            $isHeld = $grant->freeAt > $this->memory->now();
            $replies[] = $isHeld ? 1 : -1;
            $isHeld && $result !== null && $this->memory->answer($name, $result);
            $this->memory->release($grant, $name);
        }
        return count($replies) === 1 ? $replies[0] : count(array_filter($replies));
    }

    private function check(string $name, int $token): int
    {
        $grant = $this->memory->key($name)->find($token);
        return $grant === null ? 0 : max(0, self::milliseconds($grant->leaseEnds - $this->memory->now()));
    }

    private function cancel(string $name, string $id): int
    {
        $grant = $this->memory->key($name)->heldBy($id, $this->memory->now());
        $grant === null || $this->memory->release($grant, ...$grant->ask->keys);
        return $grant === null ? 0 : 1;
    }

    /** @return list<mixed> */
    private function info(string $name): array
    {
        [$key, $now] = [$this->memory->key($name), $this->memory->now()];
        $held = $key->held($now);
        usort($held, static fn (Grant $one, Grant $two): int => $two->freeAt <=> $one->freeAt);
        $grant = $held[0] ?? $key->expired($now, isLast: true);
        $fields = ['state' => $held ? 'held' : ($grant === null ? 'free' : 'expired')];
        if ($grant !== null) {
            $fields += ['token' => $grant->token, 'id' => $grant->ask->id, 'owner' => $grant->ask->owner,
                'held-ms' => self::milliseconds($now - $grant->granted),
                'lease-ms' => max(0, self::milliseconds($grant->leaseEnds - $now)),
                'free-in-ms' => (int) ceil(max(0, $grant->freeAt - $now) / Clock::ticks(1.0) * 1000),
                'overdue-ms' => $held ? null : self::milliseconds($now - $grant->freeAt)];
        }
        $fields['waiters'] = count($this->memory->waiting([$name]));
        return array_merge(...array_map(null, array_keys($fields), array_values($fields)));
    }

    private static function milliseconds(int $ticks): int
    {
        return (int) floor($ticks / Clock::ticks(1.0) * 1000);
    }
}
