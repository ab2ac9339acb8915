<?php

declare(strict_types=1);

namespace Serverlock\Core;

use Serverlock\Exception\LockBadArgumentException;
use Serverlock\LockOptions;

/**
 * A lock's request: checks it before anything is sent, and builds the words of its commands. Pure: it has no clock and
 * no connection. Times are seconds.
 *
 * @internal
 */
final class Request
{
    private const TEN_YEARS = 315_360_000.0;
    private const LONGEST_NOTIFY = 3600.0;
    private const LONGEST_KEY = 4096;
    private const MOST_KEYS = 1024;
    private const MOST_HOLDERS = 4096;

    /** The keys as messages show them. */
    public readonly string $name;
    private ?string $prefix = null;
    /** @var list<string|int> */
    private array $keysAsSent = [];
    /** @var list<string|int> */
    private array $head = [];
    /** @var list<string|int> */
    private array $tail = [];
    /** @var list<string>|false|null false: there are none for these names; null: not built yet */
    private array|false|null $keysAndQueues = null;

    /**
     * @param array<mixed> $keys
     * @param array{}|array{'SHARED'}|array{'LIMIT', int} $kind
     * @param bool $takesResult the holder's result may end the attempt
     */
    public function __construct(
        public readonly array $keys,
        public readonly float $lease,
        public readonly LockOptions $options = new LockOptions(),
        public readonly Form $form = Form::One,
        public readonly array $kind = [],
        public readonly bool $takesResult = false,
    ) {
        $this->name = self::shown($keys);
        $fault = $this->fault();
        if ($fault !== null) {
            throw new LockBadArgumentException($this->name, $fault);
        }
    }

    /**
     * The keys as messages show them.
     *
     * @param array<mixed> $keys
     */
    public static function shown(array $keys): string
    {
        $shown = [];
        foreach ($keys as $key) {
            $text = is_string($key) ? $key : get_debug_type($key);
            $isLong = strlen($text) > 200;
            $text = $isLong ? substr($text, 0, 200) : $text;
            $isText = preg_match('/^[^\p{C}"\\\\]*$/u', $text) === 1;
            $text = $isText ? $text : addcslashes($text, "\0..\37\"\\\177..\377");
            $shown[] = "\"$text\"" . ($isLong ? '...' : '');
        }
        return count($shown) > 8 ? implode(', ', array_slice($shown, 0, 8)) . ', ...' : implode(', ', $shown);
    }

    /** The first wrong argument, and the allowed values. */
    private function fault(): ?string
    {
        $options = $this->options;
        if (!$this->keys) {
            return 'keys is empty: allOf needs at least one';
        }
        if (count($this->keys) > self::MOST_KEYS) {
            return sprintf('keys are %d, more than %d', count($this->keys), self::MOST_KEYS);
        }
        foreach ($this->keys as $key) {
            if (!is_string($key)) {
                return sprintf('a key is %s, not a string', get_debug_type($key));
            }
            if (strlen($key) > self::LONGEST_KEY) {
                return sprintf('the key is longer than %d bytes', self::LONGEST_KEY);
            }
        }
        if (count(array_unique($this->keys, SORT_STRING)) < count($this->keys)) {
            return 'keys has the same key twice';
        }
        if (isset($this->kind[1]) && ($this->kind[1] < 1 || $this->kind[1] > self::MOST_HOLDERS)) {
            return sprintf('n is %d, not between 1 and %d', $this->kind[1], self::MOST_HOLDERS);
        }
        if ($this->form === Form::Recovery && $options->wait !== 0.0) {
            return 'wait is given, but recover does not wait';
        }
        if ($this->form === Form::Recovery && $options->reentrant) {
            return 'reentrant is given, but a caller that holds the lock cannot recover it';
        }
        if ($this->form !== Form::One && $options->details) {
            return 'details is given, but allOf has none, and recover always gives the predecessor';
        }
        $spans = [
            ['lease', $this->lease, 0.001, self::TEN_YEARS],
            ['wait', $options->wait, $this->takesResult ? 0.001 : 0.0, INF],
            ['replicasWithin', $options->replicasWithin, 0.001, 3600.0],
            ['atLeast', $options->atLeast, 0.0, self::TEN_YEARS],
            ['maxHold', $options->maxHold ?? INF, 0.001, INF],
        ];
        foreach ($spans as [$argument, $value, $least, $most]) {
            if (is_nan($value) || $value < $least || $value > $most) {
                return sprintf('%s is %s, not between %s and %s seconds', $argument, $value, $least, $most);
            }
        }
        if ($options->replicas < 0 || $options->replicas > 1000) {
            return sprintf('replicas is %d, not between 0 and 1000', $options->replicas);
        }
        if (is_string($options->owner) && preg_match('/\A[!-~]{1,128}\z/', $options->owner) !== 1) {
            $owner = json_encode(substr($options->owner, 0, 140), JSON_INVALID_UTF8_SUBSTITUTE);
            return "owner is $owner, not 1 to 128 visible ASCII characters without a space";
        }
        return null;
    }

    public function isExclusive(): bool
    {
        return !$this->kind;
    }

    public function isSameLock(self $other): bool
    {
        $isSubset = count($this->keys) === count($other->keys) && !array_diff($this->keys, $other->keys);
        return $isSubset && $this->kind === $other->kind;
    }

    /** Whether the grant belongs to a connection. */
    public function needsConnection(): bool
    {
        return $this->options->session || $this->options->replicas > 0 || $this->options->fsync;
    }

    /** Why the script cannot grant this lock; null if it can. */
    public function needsModule(): ?string
    {
        if ($this->options->session) {
            return 'session needs the module, which is not loaded';
        }
        if ($this->mayBeAlone() || $this->keysAndQueues() !== null) {
            return null;
        }
        $what = $this->form === Form::Many ? 'allOf' : strtolower((string) ($this->kind[0] ?? ''));
        return "a key has a brace but no hash tag: there $what needs the module, which is not loaded";
    }

    /** Whether the script can grant this lock without its queue. */
    public function mayBeAlone(): bool
    {
        return $this->isExclusive() && $this->form !== Form::Many;
    }

    /**
     * The keys and then their queues, as sent to the script; null if these names have no queues.
     *
     * @return list<string>|null
     */
    public function keysAndQueues(): ?array
    {
        if ($this->keysAndQueues === null) {
            $queues = array_map(self::queueOf(...), $this->sentKeys());
            $this->keysAndQueues = in_array(null, $queues, true) ? false : [...$this->sentKeys(), ...$queues];
        }
        return $this->keysAndQueues ?: null;
    }

    /** A lock's queue: in the same slot, and not any other lock's queue. */
    public static function queueOf(string $key): ?string
    {
        return self::beside($key, 'queue');
    }

    /** Where a holder stores its result without the module; null if this name has no such key. */
    public function resultKey(): ?string
    {
        return self::beside($this->key(), 'result');
    }

    private static function beside(string $key, string $what): ?string
    {
        return match (true) {
            strpbrk($key, '{}') === false => "$key:$what:{{$key}}",
            preg_match('/\A[^{]*\{[^}]+\}/', $key) === 1 => "$key:$what",
            default => null,
        };
    }

    /** Sets the library's prefix, with which keys are sent. */
    public function bind(string $prefix): void
    {
        if ($prefix === $this->prefix) {
            return;
        }
        $this->prefix = $prefix;
        $this->keysAsSent = array_map(static fn (string $key): string => $prefix . $key, array_values($this->keys));
        $this->keysAndQueues = null;
        $this->head = [$this->form->value, ...$this->named()];
        $this->tail = [
            ...($this->options->session ? ['SESSION'] : []),
            ...($this->options->details && $this->form === Form::One ? ['DETAILS'] : []),
        ];
    }

    /** The key that selects the server, as sent. */
    public function key(): string
    {
        return (string) $this->keysAsSent[0];
    }

    /** @return list<string> as sent */
    public function sentKeys(): array
    {
        /** @var list<string> */
        return $this->keysAsSent;
    }

    /** @return list<string|int> */
    public function acquire(string $id, float $wait = 0.0): array
    {
        $result = $this->takesResult && $wait > 0 ? ['RESULT'] : [];
        return [...$this->head, ...$this->terms($id, $wait), ...$result];
    }

    /** @return list<string|int> the arguments after the keys */
    public function terms(string $id, float $wait = 0.0, ?string $channel = null): array
    {
        $lease = ['PX', self::milliseconds($this->lease)];
        $owner = $this->options->owner;
        $tail = [...$this->kind, ...($owner === null ? [] : ['OWNER', Owner::label($owner)]), ...$this->tail];
        if ($wait <= 0) {
            return [...$lease, 'ID', $id, ...$tail];
        }
        $ms = self::milliseconds(min($wait, $channel === null ? self::TEN_YEARS : self::LONGEST_NOTIFY));
        $notify = $channel === null ? [] : ['NOTIFY', $channel];
        return [...$lease, 'WAIT', $ms, 'ID', $id, ...$notify, ...$tail];
    }

    /** @return list<string|int> */
    public function extend(int $token, float $lease): array
    {
        $command = $this->form === Form::Many ? 'LOCK.MEXTEND' : 'LOCK.EXTEND';
        return [$command, ...$this->named(), $token, 'PX', self::milliseconds($lease)];
    }

    /** @return list<string|int> */
    public function release(int $token, ?string $result = null): array
    {
        $command = $this->form === Form::Many ? 'LOCK.MRELEASE' : 'LOCK.RELEASE';
        return [$command, ...$this->named(), $token, ...($result === null ? [] : ['RESULT', $result])];
    }

    /** Reads the reply to a release. */
    public function wasHeld(mixed $reply): bool
    {
        return $reply === ($this->form === Form::Many ? count($this->keys) : 1);
    }

    /** The error for a lease that is out of range, or null. */
    public function faultOfLease(float $lease): ?LockBadArgumentException
    {
        if ($lease >= 0.001 && $lease <= self::TEN_YEARS) {
            return null;
        }
        $fault = sprintf('lease is %s, not between 0.001 and %s seconds', $lease, self::TEN_YEARS);
        return new LockBadArgumentException($this->name, $fault);
    }

    /** Rounds, but never to 0. */
    public static function milliseconds(float $seconds): int
    {
        return max(1, (int) round($seconds * 1000));
    }

    /** @return list<string|int> */
    private function named(): array
    {
        return $this->form === Form::Many ? [count($this->keysAsSent), ...$this->keysAsSent] : $this->keysAsSent;
    }
}
