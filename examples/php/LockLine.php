<?php

declare(strict_types=1);

require_once __DIR__ . '/LockError.php';

/** One attempt at a lock, and its connection: what is sent, and what the answers mean. */
final class LockLine
{
    private const ACQUIRE = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end ";
    private const EXTEND =
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end ";
    private const DELETE =
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
    /** What stands for LOCK.* under the fallback. */
    private const SCRIPTS = [
        'ACQUIRE' => self::ACQUIRE . self::EXTEND,
        'EXTEND' => self::EXTEND . 'return 0',
        'RELEASE' => self::DELETE,
        'CANCEL' => self::DELETE,
    ];

    public ?int $token = null;
    public bool $isPlain = false;
    private string $id = '';
    private ?Redis $redis = null;
    private readonly int $leaseMs;
    private readonly array $options;

    public function __construct(
        private readonly Closure $connect,
        private readonly string $key,
        float $lease,
        ?string $owner,
        bool $session,
        private readonly bool $fallback,
    ) {
        $this->leaseMs = (int) round($lease * 1000);
        $this->options = [...($owner === null ? [] : ['OWNER', $owner]), ...($session ? ['SESSION'] : [])];
    }

    /** A new attempt: its ID is chosen here, once, and sent with each command of it. */
    public function begin(): void
    {
        [$this->token, $this->isPlain, $this->id] = [null, false, (string) random_int(1, PHP_INT_MAX)];
    }

    /** The reply to LOCK.<name>, or to the script that stands for it: an integer, or null for nil. */
    public function exchange(string $name, float $timeout, float $piece = 0): ?int
    {
        try {
            $reply = $this->ask($timeout, $name, $piece);
        } catch (RedisException $error) {
            if (!$this->isPlain && str_contains($error->getMessage(), 'unknown command')) {
                $this->fallBack($name, $error);
                return $this->exchange($name, $timeout, $piece);
            }
            if (self::isBroken($error)) {
                $this->disconnect(); // a reply to this command must not be read as that to the next
            }
            throw $error;
        }
        if ($name === 'ACQUIRE' && ($reply === false || is_int($reply) && $reply > 0)) {
            $this->token = $this->isPlain || !$reply ? null : $reply;
            return $reply ?: null;
        }
        if ($name !== 'ACQUIRE' && in_array($reply, [-1, 0, 1], true)) {
            return $reply;
        }
        $this->disconnect();
        throw new LockReply("LOCK.$name of the lock '$this->key' was answered " . json_encode($reply));
    }

    /** Leaves the line, or gives back what was granted. If it fails, the lease ends it. */
    public function cancel(float $timeout): void
    {
        try {
            $this->exchange('CANCEL', $timeout);
        } catch (RedisException | LockError) {
        }
        $this->disconnect();
    }

    public function disconnect(): void
    {
        try {
            $this->redis?->close();
        } catch (RedisException) {
        }
        $this->redis = null;
    }

    public function lost(string $why, ?Throwable $cause = null): LockLost
    {
        $text = "the lock '$this->key' is lost: $why" . ($cause ? ": {$cause->getMessage()}" : '');
        return new LockLost($text, previous: $cause);
    }

    public function refused(): LockRefused
    {
        return new LockRefused("somebody else has the lock '$this->key'");
    }

    /** Whether to connect anew, perhaps to a new master. What the server answers begins with a code. */
    public static function isBroken(Exception $error): bool
    {
        return !preg_match('/^(?!READONLY|LOADING)[A-Z]{2,} /', $error->getMessage());
    }

    /** Whether the same command may succeed later: the server, or its part as master, is changing. */
    public static function mayPass(RedisException $error): bool
    {
        return self::isBroken($error) || preg_match('/^(UNBLOCKED|NOREPLICAS) /', $error->getMessage());
    }

    private function fallBack(string $name, RedisException $error): void
    {
        $why = "the server does not know LOCK.*: {$error->getMessage()}";
        if ($name !== 'ACQUIRE' || !$this->fallback) {
            throw new LockUnsupported("the lock '$this->key': $why", previous: $error);
        }
        trigger_error("the lock '$this->key' is held by SET NX PX, without order and token: $why", E_USER_WARNING);
        $this->isPlain = true;
    }

    /** Takes no longer than the time-out in all, connecting included. */
    private function ask(float $timeout, string $name, float $piece): mixed
    {
        $end = hrtime(true) / 1e9 + $timeout;
        if ($this->redis === null) {
            $this->redis = ($this->connect)($timeout / 2);
            // A connection that broke is an error: a session would have ended without a word.
            $this->redis->setOption(Redis::OPT_MAX_RETRIES, 0);
        }
        $this->redis->setOption(Redis::OPT_READ_TIMEOUT, max($end - hrtime(true) / 1e9, 0.001));
        $this->redis->clearLastError();
        $reply = $this->redis->rawCommand(...$this->command($name, $piece));
        // Of some errors it tells so only.
        $refusal = $this->redis->getLastError();
        return $refusal === null ? $reply : throw new RedisException($refusal);
    }

    private function command(string $name, float $piece): array
    {
        $key = $this->redis->_prefix($this->key); // rawCommand does not
        if ($this->isPlain) { // letters in the value: to the module this is no timestamp, so never expired
            return ['EVAL', self::SCRIPTS[$name], 1, $key, "id:$this->id", $this->leaseMs];
        }
        $waitMs = (int) round($piece * 1000);
        return ["LOCK.$name", $key, ...match ($name) {
            'ACQUIRE' => ['PX', $this->leaseMs, 'WAIT', $waitMs, 'ID', $this->id, ...$this->options],
            'EXTEND' => [$this->token, 'PX', $this->leaseMs],
            'RELEASE' => [$this->token],
            'CANCEL' => [$this->id],
        }];
    }
}
