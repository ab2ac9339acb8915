<?php

declare(strict_types=1);

namespace Serverlock\Testing;

use Psr\Log\LoggerInterface;
use Serverlock\Core\Request;
use Serverlock\Exception\LockBadArgumentException;
use Serverlock\Exception\LockLostException;
use Serverlock\Held;
use Serverlock\Hooks;
use Serverlock\Locks;

/**
 * An in-memory lock server, for applications' tests. Its time stands still until the test moves its clock, or a caller
 * waits for a lock.
 *
 * It has LOCK.* as far as this package uses them, with the module's rules and default settings: the margin is 1 s. It
 * has neither replicas nor disks, so `replicas` and `fsync` fail as LockUnavailableException, and so does a command in
 * Held::fenced() if the lock is held. It does not detect deadlocks.
 */
final class Server
{
    private const REFUSALS = [
        'unavailable' => 'CLOCK the test refuses this key',
        'denied' => 'NOPERM the test refuses this key',
    ];

    public readonly Clock $clock;
    private readonly Memory $memory;

    public function __construct()
    {
        $this->clock = new Clock();
        $this->memory = new Memory($this->clock);
    }

    /** A manager, for the code under test. Several managers of one server behave like several processes. */
    public function locks(?Hooks $hooks = null, ?LoggerInterface $logger = null): Locks
    {
        return new Locks(new MemoryClient($this->memory), hooks: $hooks, logger: $logger);
    }

    /**
     * The leases of the key's holders end now, on the server: the next caller gets the lock, even with recover(). A
     * holder finds out from check() once a third of its lease has passed, or from verify(), extend() or release().
     */
    public function expire(string $key): void
    {
        $now = $this->memory->now();
        foreach ($this->memory->key($key)->held($now) as $grant) {
            $grant->expire($now, $now);
        }
        $this->memory->serve();
    }

    /** The hold is lost: its holder is notified at once, and the key is free. */
    public function lose(Held $held): void
    {
        $names = $held->hold->request->sentKeys();
        $grant = $this->memory->key($names[0])->find($held->token);
        $grant === null || $this->memory->release($grant, ...$names);
        try {
            $held->verify();
        } catch (LockLostException) {
            // it knows
        }
    }

    /**
     * Until allow(), attempts for the key, including those that are waiting, fail at once. Holders keep the lock until
     * their lease ends, because renewals fail.
     *
     * @param string $error unavailable or denied
     */
    public function refuse(string $key, string $error = 'unavailable'): void
    {
        $kinds = implode(' or ', array_keys(self::REFUSALS));
        $this->memory->key($key)->refusal = self::REFUSALS[$error]
            ?? throw new LockBadArgumentException(Request::shown([$key]), "error is \"$error\", not $kinds");
    }

    /** Ends refuse(). */
    public function allow(string $key): void
    {
        $this->memory->key($key)->refusal = null;
    }

    /**
     * Sends a command, for example LOCK.INFO.
     *
     * @internal
     * @param list<string> $words
     */
    public function call(array $words): mixed
    {
        return (new Commands($this->memory))->call($words);
    }
}
