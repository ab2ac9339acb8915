<?php

declare(strict_types=1);

namespace Serverlock\Core;

/**
 * The same lock where the module is not loaded: the scripts of lock.lua, sent by their hash. Keys, values, replies and
 * errors are those of the commands, for one key with one holder.
 *
 * @internal
 */
final class Portable
{
    /** The CHECK of the scripts, before one command of the user's. */
    public const FENCED = <<<'LUA'
        local value, time = redis.call('GET', KEYS[1]), redis.call('TIME')
        local ends = value and value:match('^(%d%d%d%d%d%d%d%d%d%d%.%d%d%d%d%d%d)' .. ('%016.0f'):format(ARGV[1]))
        if not ends or tonumber(ends) - 1 <= time[1] + time[2] / 1000000 then return {'LOCK.LOST'} end
        local reply = redis.call(unpack(ARGV, 2))
        return {type(reply) == 'table' and reply.ok or reply}
        LUA;
    private const MARGIN = 1000;
    private const RETENTION = 60_000;
    /** How long a reply about the eviction policy counts: after a failover the server is another. */
    private const POLICY_COUNTS = 60.0;

    private static ?string $script = null;
    private static string $digest = '';
    private bool $isLoaded = false;
    private int $retention = -1;
    private float $askedAt = -INF;

    /** @param \Closure(list<string|int|float>): mixed $send one exchange with the server of that key */
    public function acquire(\Closure $send, Request $request, string $id): mixed
    {
        $this->askPolicy($send);
        $name = $request->form === Form::Recovery ? 'lock_recover' : 'lock_acquire';
        return $this->call($send, $request, $name, ...array_slice($request->acquire($id), 2));
    }

    /**
     * Gives back what this ID may have been granted: the same ID gets the same token.
     *
     * @param \Closure(list<string|int|float>): mixed $send
     */
    public function cancel(\Closure $send, Request $request, string $id): void
    {
        $token = $this->call($send, $request, 'lock_acquire', 'PX', 1, 'ID', $id);
        if (is_int($token)) {
            $this->call($send, $request, 'lock_release', $token);
        }
    }

    /** @return list<string|int|float> */
    public function words(Request $request, string $name, string|int ...$args): array
    {
        [$by, $source] = $this->isLoaded ? ['EVALSHA', self::digest()] : ['EVAL', self::script()];
        return [$by, $source, 1, $request->key(), $name, self::MARGIN, $this->retention, ...array_values($args)];
    }

    /** The server has lost the script. */
    public function missed(): void
    {
        $this->isLoaded = false;
    }

    /** @param \Closure(list<string|int|float>): mixed $send */
    private function call(\Closure $send, Request $request, string $name, string|int ...$args): mixed
    {
        try {
            $reply = $send($this->words($request, $name, ...$args));
        } catch (ReplyError $error) {
            if ($error->word !== 'NOSCRIPT') {
                throw $error;
            }
            $this->missed();
            $reply = $send($this->words($request, $name, ...$args));
        }
        $this->isLoaded = true;
        return $reply;
    }

    /**
     * Under a volatile policy a key with an expiry could be evicted. Then, and if the policy is unknown, locks have no
     * expiry.
     *
     * @param \Closure(list<string|int|float>): mixed $send
     */
    private function askPolicy(\Closure $send): void
    {
        if (Clock::now() < $this->askedAt + self::POLICY_COUNTS) {
            return;
        }
        try {
            $info = $send(['INFO', 'memory']);
        } catch (ReplyError) {
            $info = '';
        }
        $isKnown = is_string($info) && preg_match('/^maxmemory_policy:(\S+)/m', $info, $policy) === 1;
        $this->retention = $isKnown && !str_starts_with($policy[1] ?? '', 'volatile') ? self::RETENTION : -1;
        $this->askedAt = Clock::now();
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
