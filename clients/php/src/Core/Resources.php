<?php

declare(strict_types=1);

namespace Serverlock\Core;

use Psr\Log\LoggerInterface;
use Serverlock\Hooks;
use Serverlock\Watch;
use Serverlock\Wire\Client;
use Serverlock\Wire\Connection;
use Serverlock\Wire\DedicatedClient;
use Serverlock\Wire\Subscription;

/**
 * What a manager owns in one process, and what its attempts and holds use: the application's client, one dedicated
 * connection for waits (without the module a subscription), those of session locks, the hooks, and work left to do.
 *
 * @internal
 */
final class Resources
{
    public readonly Time $clock;
    public Debts $debts;
    public Sessions $sessions;
    public bool $isClosed = false;
    public int $pid;
    private ?Connection $connection = null;
    private ?Subscription $subscription = null;
    private ?string $channel = null;
    /** @var list<mixed> belongs to the parent process */
    private array $inherited = [];

    public function __construct(
        private Client $client,
        public readonly float $timeout,
        public readonly Module $module,
        public readonly ?Hooks $hooks,
        public readonly ?LoggerInterface $logger,
    ) {
        $this->pid = (int) getmypid();
        $this->clock = $client->clock();
        $this->debts = new Debts($this->clock);
        $this->sessions = new Sessions();
    }

    /**
     * The application's client; in a child process, whose connections belong to the parent, the child's own. Every path
     * to a server calls this first, or compares its hold's process ID.
     */
    public function client(): Client
    {
        if ($this->pid !== getmypid()) {
            // Kept, so that they are not closed here: TLS would send its closing alert in the parent's name.
            array_push($this->inherited, $this->client, $this->connection, $this->subscription, $this->debts);
            array_push($this->inherited, ...$this->sessions->open());
            $this->client = new DedicatedClient(
                $this->client->known(),
                $this->client->prefix(),
                $this->client->isCluster(),
            );
            [$this->pid, $this->connection, $this->debts] = [(int) getmypid(), null, new Debts($this->clock)];
            [$this->subscription, $this->channel, $this->sessions] = [null, null, new Sessions()];
        }
        return $this->client;
    }

    /**
     * Signals are deferred: a handler's exception would leave the reply on the connection, to be read as the reply to
     * the next command.
     *
     * @param list<string|int|float> $words
     * @throws ReplyError|ConnectionLost
     */
    public function call(string $key, array $words, float $timeout): mixed
    {
        $wasAsync = Signals::defer();
        try {
            return $this->client->call($key, $words, $timeout);
        } finally {
            $wasAsync && Signals::restore();
        }
    }

    /**
     * Sends a command for a held lock, and again through the script if the module is gone.
     *
     * @param \Closure(Calls, \Closure(list<string|int|float>): mixed): mixed $call
     * @throws ReplyError|ConnectionLost
     */
    public function ask(Hold $hold, \Closure $call, float $timeout): mixed
    {
        $send = fn (array $words): mixed => $this->call($hold->request->key(), $words, $timeout);
        try {
            return $call($hold->calls, $send);
        } catch (ReplyError $error) {
            if (!$this->module->wasLost($hold, $error)) {
                throw $error;
            }
        }
        return $call($hold->calls, $send);
    }

    public function now(): float
    {
        return $this->clock->now();
    }

    public function pause(float $seconds): void
    {
        $this->clock->pause($seconds);
    }

    /** How long a reply may take if no caller waits for it. */
    public function patience(): float
    {
        return min(1.0, $this->timeout);
    }

    public function open(string $key): Connection
    {
        return $this->client->open($this->client->address($key, $this->timeout), $this->timeout);
    }

    /** @throws ReplyError|ConnectionLost */
    public function takeSession(string $key): Session
    {
        return $this->sessions->take($this->client, $key, $this->timeout);
    }

    /**
     * Takes the connection for waits, if it is open. A signal handler that then waits for another lock opens one more.
     */
    public function takeConnection(): ?Connection
    {
        [$connection, $this->connection] = [$this->connection, null];
        return $connection?->isOpen() ? $connection : null;
    }

    /** In a cluster the connection is not kept, because the next key may be on another server. */
    public function giveBackConnection(Connection $connection): void
    {
        if ($this->connection === null && !$this->isClosed && !$this->client->isCluster()) {
            $this->connection = $connection;
        } else {
            $connection->close();
        }
    }

    /** The channel on which the attempts of this process are notified. */
    public function channel(): string
    {
        return $this->channel ??= 'serverlock:' . bin2hex(random_bytes(8));
    }

    /** @throws ReplyError|ConnectionLost */
    public function subscribe(string $key): Subscription
    {
        return Subscription::open($this->client->address($key, $this->timeout), $this->channel(), $this->timeout);
    }

    /** Like takeConnection(). Messages that have arrived since are dropped: they do not concern this wait. */
    public function takeSubscription(): ?Subscription
    {
        [$subscription, $this->subscription] = [$this->subscription, null];
        return $subscription?->isOpen() ? $subscription : null;
    }

    /** The subscription is kept even in a cluster, because any server passes the messages on. */
    public function giveBackSubscription(Subscription $subscription): void
    {
        if ($this->subscription === null && !$this->isClosed) {
            $this->subscription = $subscription;
        } else {
            $subscription->close();
        }
    }

    public function close(): void
    {
        $this->isClosed = true;
        $this->client();
        $this->connection?->close();
        $this->subscription?->close();
        $this->connection = $this->subscription = null;
    }

    /** Follows an attempt before anything is sent; null if nobody does. */
    public function watch(Request $request): ?Watching
    {
        $watch = null;
        $began = $this->hooks?->began;
        $begin = static function () use (&$watch, $began, $request): void {
            $watch = $began === null ? null : $began($request->keys);
        };
        $this->notify($begin);
        if (!$watch instanceof Watch) {
            return null;
        }
        return new Watching($watch, $request->form, $this->clock, $this->notify(...));
    }

    /** Calls a hook. The application's work does not depend on it. */
    public function notify(?\Closure $hook, mixed ...$args): void
    {
        if ($hook === null) {
            return;
        }
        try {
            $hook(...$args);
        } catch (\Throwable $error) {
            $context = ['error' => $error->getMessage(), 'exception' => $error];
            $this->logger?->error('serverlock: a hook failed: {error}', $context);
        }
    }

    public function warn(string $text, Hold $hold, \Throwable $error): void
    {
        $context = ['key' => $hold->request->name, 'error' => $error->getMessage(), 'exception' => $error];
        $this->logger?->warning("serverlock: $text", $context);
    }
}
