<?php

declare(strict_types=1);

namespace Serverlock;

use Predis\ClientInterface;
use Predis\Connection\NodeConnectionInterface;
use Psr\Log\LoggerInterface;
use Serverlock\Core\Engine;
use Serverlock\Core\Form;
use Serverlock\Core\Request;
use Serverlock\Core\SingleFlight;
use Serverlock\Exception\LockBadArgumentException;
use Serverlock\Exception\LockException;
use Serverlock\Wire\Client;
use Serverlock\Wire\Phpredis;
use Serverlock\Wire\PhpredisCluster;
use Serverlock\Wire\Predis;
use Serverlock\Wire\PredisCluster;

/**
 * The locks of one of the application's Redis clients. Create one Locks for each client, and keep it.
 *
 * Times are seconds. Each kind of lock takes LockOptions after its key and lease: as one object, or as the arguments of
 * its constructor, as in `lock('report', 30.0, wait: 60.0)`.
 */
final class Locks
{
    private readonly Engine $engine;

    /**
     * @param \Redis|\RedisCluster|ClientInterface|\Closure(): \Redis $client a closure connects to the current master;
     *     it is called again when the connection has broken, or leads to a replica
     * @param float $timeout how long a reply may take
     * @param bool $portable use a script where the module is missing, still in order of arrival; session needs the
     *     module
     * @param string|list<string>|null $auth password, or user and password, for the connections that Locks open, if the
     *     client does not reveal them: \RedisCluster
     * @param array<string, mixed>|null $tls options of the "ssl" context for the connections that Locks open, if the
     *     client does not reveal them: \Redis, \RedisCluster
     * @param bool $warnWithoutModule report once that the module is missing: to the logger, or to PHP's error log
     */
    public function __construct(
        \Redis|\RedisCluster|ClientInterface|\Closure|Client $client,
        float $timeout = 5.0,
        bool $portable = true,
        ?Hooks $hooks = null,
        ?LoggerInterface $logger = null,
        string|array|null $auth = null,
        ?array $tls = null,
        bool $warnWithoutModule = true,
    ) {
        if (!($timeout >= 0.001 && $timeout <= 86_400)) {
            throw new LockBadArgumentException('', "timeout is $timeout, not between 0.001 and 86400 seconds");
        }
        $client = self::client($client, $auth, $tls);
        $this->engine = new Engine($client, $timeout, $portable, $hooks, $logger, $warnWithoutModule);
    }

    /** A lock with one holder at a time. */
    public function lock(
        string $key,
        float $lease,
        LockOptions|DefaultOwner|float|string|bool|int|null ...$options
    ): Lock {
        return $this->describe([$key], $lease, $options);
    }

    /** A lock that any number of holders share (readers); a holder of lock() (a writer) excludes them. */
    public function shared(
        string $key,
        float $lease,
        LockOptions|DefaultOwner|float|string|bool|int|null ...$options
    ): Lock {
        return $this->describe([$key], $lease, $options, kind: ['SHARED']);
    }

    /** A lock with at most $n holders at a time. */
    public function limit(
        string $key,
        int $n,
        float $lease,
        LockOptions|DefaultOwner|float|string|bool|int|null ...$options
    ): Lock {
        return $this->describe([$key], $lease, $options, kind: ['LIMIT', $n]);
    }

    /**
     * A lock on all of the keys or none of them, under one token. An attempt holds none of them while it waits. In a
     * cluster the keys have to be in one slot. It takes all options except details.
     *
     * @param array<string> $keys
     */
    public function allOf(
        array $keys,
        float $lease,
        LockOptions|DefaultOwner|float|string|bool|int|null ...$options
    ): Lock {
        return $this->describe(array_values($keys), $lease, $options, Form::Many);
    }

    /**
     * A lock that can be acquired only if its last holder never released it; that holder is the predecessor. It takes
     * all options except wait, details and reentrant.
     */
    public function recover(
        string $key,
        float $lease,
        LockOptions|DefaultOwner|float|string|bool|int|null ...$options
    ): Lock {
        return $this->describe([$key], $lease, $options, Form::Recovery);
    }

    /** A campaign for a key. Leader::run() starts it. */
    public function leader(
        string $key,
        float $lease,
        DefaultOwner|string|null $owner = DefaultOwner::HostAndPid,
        bool $session = false,
    ): Leader {
        $options = new LockOptions(wait: INF, owner: $owner, session: $session);
        return new Leader($this->engine, new Request([$key], $lease, $options));
    }

    /**
     * Work that runs once per period, in one of the processes that ask. Once::run() runs it.
     *
     * A call is for the nearest tick. Ticks begin at multiples of the period, counted from the beginning of 1970 on the
     * server's clock.
     *
     * @param float $period at least 10 seconds
     * @param float|null $lease of the lock while the work runs, at most half of the period; null: 10 s, or a quarter of
     *     the period if that is shorter
     * @param bool $rerun whether a tick runs again if its process dies; if not, the lease lasts until halfway to the
     *     next tick from the start
     * @param DefaultOwner|string|null $owner this and the rest are as in LockOptions
     */
    public function once(
        string $key,
        float $period,
        ?float $lease = null,
        bool $rerun = true,
        DefaultOwner|string|null $owner = DefaultOwner::HostAndPid,
        int $replicas = 0,
        float $replicasWithin = 1.0,
        bool $fsync = false,
        ?float $maxHold = null,
    ): Once {
        $options = new LockOptions(
            owner: $owner,
            details: true,
            replicas: $replicas,
            replicasWithin: $replicasWithin,
            fsync: $fsync,
            maxHold: $maxHold,
        );
        return new Once($this->engine, $key, $period, $lease, $rerun, $options);
    }

    /**
     * One result for many callers: one of the processes that ask at the same time computes it, and those that wait get
     * the same bytes.
     *
     * Computes while the lock is held, as in Lock::run(), and releases the lock with the result. If the computation
     * fails, its error is thrown, and the next caller in the queue computes. Results of more than `lock.result-max`
     * bytes (64 KB by default) are not shared: each caller computes its own. Nothing is kept: a caller that comes after
     * the release computes again. Asking for the same key within the computation is an error.
     *
     * @param callable(Held): string $compute
     * @param float $wait how long to wait for the result, at least 0.001; INF: forever
     * @param DefaultOwner|string|null $owner this and the rest are as in LockOptions
     * @throws LockException
     */
    public function singleFlight(
        string $key,
        float $lease,
        callable $compute,
        float $wait = 60.0,
        DefaultOwner|string|null $owner = DefaultOwner::HostAndPid,
        ?float $maxHold = null,
    ): string {
        $options = new LockOptions(wait: $wait, owner: $owner, maxHold: $maxHold);
        $request = new Request([$key], $lease, $options, takesResult: true);
        return (new SingleFlight($this->engine, $request))->run($compute);
    }

    /** Closes its own connections, not the client. Every later attempt fails; held locks can still be released. */
    public function close(): void
    {
        $this->engine->close();
    }

    /**
     * @param array<string> $keys
     * @param array<LockOptions|DefaultOwner|float|string|bool|int|null> $options
     * @param array{}|array{'SHARED'}|array{'LIMIT', int} $kind
     */
    private function describe(
        array $keys,
        float $lease,
        array $options,
        Form $form = Form::One,
        array $kind = [],
    ): Lock {
        return new Lock($this->engine, new Request($keys, $lease, LockOptions::of($options), $form, $kind));
    }

    /** @param array<string, mixed>|null $tls */
    private static function client(object $client, mixed $auth, ?array $tls): Client
    {
        if ($client instanceof Client) {
            return $client;
        }
        if ($client instanceof \RedisCluster) {
            return new PhpredisCluster($client, $auth, $tls);
        }
        if (!$client instanceof ClientInterface) {
            /** @var \Redis|\Closure(): \Redis $client */
            return new Phpredis($client, $auth, $tls);
        }
        $connection = $client->getConnection();
        if ($connection instanceof NodeConnectionInterface || method_exists($connection, 'getMaster')) {
            return new Predis($client);
        }
        if (method_exists($connection, 'getConnectionBySlot')) {
            return new PredisCluster($client);
        }
        $reason = 'client distributes keys among servers in its own way, which locks do not support';
        throw new LockBadArgumentException('', $reason);
    }
}
