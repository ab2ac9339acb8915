<?php

declare(strict_types=1);

namespace Serverlock\Core;

/**
 * The same lock without the module: sends the scripts of lock.lua by their hash. Keys, values, replies and errors are
 * the same as with the commands. Each call names the lock and its queue, or only the lock if the queue cannot be used;
 * then attempts poll.
 *
 * @internal
 */
final class Portable implements Calls
{
    /** Milliseconds that the script adds to each lease. */
    public const MARGIN = 1000;
    private const RETENTION = 60_000;
    /** How long a reply about the eviction policy stays valid. After a failover, the new server's policy may differ. */
    private const POLICY_VALID_FOR = 60.0;
    /** How long to wait before trying a denied queue again. */
    private const DENIAL_VALID_FOR = 60.0;

    private static ?string $script = null;
    private static string $digest = '';
    private bool $isLoaded = false;
    private bool $maySubscribe = true;
    private int $retention = -1;
    private float $askedAt = -INF;
    private float $deniedUntil = -INF;

    public function __construct(private readonly Time $clock)
    {
    }

    /** Whether an attempt waits in its lock's queue; otherwise it polls. */
    public function queues(Request $request): bool
    {
        return $this->maySubscribe && $request->form === Form::One && !$this->isAlone($request);
    }

    public function maySubscribe(): bool
    {
        return $this->maySubscribe;
    }

    /** Records that the server does not let this user subscribe, so that attempts cannot be notified. */
    public function withoutSubscription(): void
    {
        $this->maySubscribe = false;
    }

    public function acquire(\Closure $send, Request $request, string $id, float $wait, ?string $channel): mixed
    {
        $this->askPolicy($send);
        $name = match ($request->form) {
            Form::One => 'lock_acquire',
            Form::Many => 'lock_acquire_all',
            Form::Recovery => 'lock_recover',
        };
        $plain = $request->terms($id);
        // Without NOTIFY an attempt never overtakes a queue, so it would starve behind one.
        if (!$this->maySubscribe && $request->mayBeAlone()) {
            return $this->run($send, $request->sentKeys(), $name, $plain);
        }
        $terms = $channel === null ? $plain : $request->terms($id, $wait, $channel);
        return $this->call($send, $request, $name, $terms, $plain);
    }

    public function cancel(\Closure $send, Request $request, string $id, string $channel): void
    {
        if ($request->form !== Form::Many && !$this->isAlone($request)) {
            $terms = ['ID', $id, 'NOTIFY', $channel, ...$request->kind];
            try {
                $this->run($send, (array) $request->keysAndQueues(), 'lock_cancel', $terms);
                return;
            } catch (ReplyError $error) {
                if ($error->word !== 'NOPERM' || !$request->mayBeAlone()) {
                    throw $error;
                }
            }
        }
        // The same ID gets the same token.
        $name = $request->form === Form::Many ? 'lock_acquire_all' : 'lock_acquire';
        $token = $this->call($send, $request, $name, ['PX', 1, 'ID', $id]);
        if (is_int($token)) {
            $this->release($send, $request, $token);
        }
    }

    public function extend(\Closure $send, Request $request, int $token, float $lease): mixed
    {
        $name = $request->form === Form::Many ? 'lock_extend_all' : 'lock_extend';
        return $this->call($send, $request, $name, [$token, 'PX', Request::milliseconds($lease)]);
    }

    public function release(\Closure $send, Request $request, int $token, ?string $result = null): mixed
    {
        $result === null || StoredResult::store($send, $request, $token, $result);
        $name = $request->form === Form::Many ? 'lock_release_all' : 'lock_release';
        return $this->call($send, $request, $name, [$token]);
    }

    public function check(\Closure $send, Request $request, int $token, int $at): mixed
    {
        if ($request->form !== Form::Many) {
            return $this->call($send, $request, 'lock_check', [$token]);
        }
        $all = (array) $request->keysAndQueues();
        return $this->run($send, [$all[$at], $all[count($all) / 2 + $at]], 'lock_check', [$token]);
    }

    public function info(\Closure $send, Request $request): mixed
    {
        return $this->call($send, $request, 'lock_info', []);
    }

    /** A lock with several holders is a sorted set. */
    public function fenced(): string
    {
        return <<<'LUA'
            local time, token, value = redis.call('TIME'), ('%016.0f'):format(ARGV[1]), redis.pcall('GET', KEYS[1])
            local ends = type(value) == 'string' and value:match('^(%d%d%d%d%d%d%d%d%d%d%.%d%d%d%d%d%d)' .. token)
            local holders = type(value) == 'table' and redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES') or {}
            for i = 1, #holders, 2 do if holders[i]:sub(1, 16) == token then ends = holders[i + 1] end end
            if not ends or tonumber(ends) - 1 <= time[1] + time[2] / 1000000 then return {'LOCK.LOST'} end
            local reply = redis.call(unpack(ARGV, 2))
            return {type(reply) == 'table' and reply.ok or reply}
            LUA;
    }

    /** Whether calls name only the lock. */
    private function isAlone(Request $request): bool
    {
        $isDenied = $this->clock->now() < $this->deniedUntil && $request->mayBeAlone();
        return $isDenied || $request->keysAndQueues() === null;
    }

    /**
     * @param \Closure(list<string|int|float>): mixed $send
     * @param list<string|int> $terms
     * @param list<string|int>|null $alone if the call names only the lock
     */
    private function call(\Closure $send, Request $request, string $name, array $terms, ?array $alone = null): mixed
    {
        $alone ??= $terms;
        if ($this->isAlone($request)) {
            return $this->run($send, $request->sentKeys(), $name, $alone);
        }
        try {
            return $this->run($send, (array) $request->keysAndQueues(), $name, $terms);
        } catch (ReplyError $error) {
            if (!in_array($error->word, ['NOPERM', 'TRYAGAIN'], true) || !$request->mayBeAlone()) {
                throw $error;
            }
        }
        $reply = $this->run($send, $request->sentKeys(), $name, $alone);
        if ($error->word === 'NOPERM') { // the lock is allowed, so the queue was denied
            $this->deniedUntil = $this->clock->now() + self::DENIAL_VALID_FOR;
        }
        return $reply;
    }

    /**
     * @param \Closure(list<string|int|float>): mixed $send
     * @param list<string|int> $keys
     * @param list<string|int> $terms
     */
    private function run(\Closure $send, array $keys, string $name, array $terms): mixed
    {
        $words = [count($keys), ...$keys, $name, self::MARGIN, $this->retention, ...$terms];
        if ($this->isLoaded) {
            try {
                return $send(['EVALSHA', self::digest(), ...$words]);
            } catch (ReplyError $error) {
                if ($error->word !== 'NOSCRIPT') {
                    throw $error;
                }
                $this->isLoaded = false;
            }
        }
        $reply = $send(['EVAL', self::script(), ...$words]);
        $this->isLoaded = true;
        return $reply;
    }

    /**
     * Under a volatile policy, a key with an expiry could be evicted. In that case, or if the policy is unknown, locks
     * have no expiry.
     *
     * @param \Closure(list<string|int|float>): mixed $send
     */
    private function askPolicy(\Closure $send): void
    {
        if ($this->clock->now() < $this->askedAt + self::POLICY_VALID_FOR) {
            return;
        }
        try {
            $info = $send(['INFO', 'memory']);
        } catch (ReplyError) {
            $info = '';
        }
        $isKnown = is_string($info) && preg_match('/^maxmemory_policy:(\S+)/m', $info, $policy) === 1;
        $this->retention = $isKnown && !str_starts_with($policy[1] ?? '', 'volatile') ? self::RETENTION : -1;
        $this->askedAt = $this->clock->now();
    }

    /** The function library without its first line. */
    private static function script(): string
    {
        if (self::$script === null) {
            $library = (string) file_get_contents(__DIR__ . '/../lock.lua');
            self::$script = (string) preg_replace('/\A#![^\n]*\n/', '', $library);
        }
        return self::$script;
    }

    private static function digest(): string
    {
        return self::$digest ?: self::$digest = sha1(self::script());
    }
}
