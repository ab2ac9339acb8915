<?php

declare(strict_types=1);

namespace Serverlock\Core;

use Serverlock\Exception\LockBadArgumentException;
use Serverlock\Exception\LockException;
use Serverlock\Exception\LockMisuseException;
use Serverlock\Exception\LockRefusedException;
use Serverlock\Exception\LockTimeoutException;
use Serverlock\Exception\LockUnavailableException;
use Serverlock\Predecessor;
use Serverlock\Wire\Connection;

/**
 * One attempt to get a lock: sent, waited for, and given up without leaving anything behind.
 *
 * It first asks without waiting, through the application's own client. It waits in the queue, under one ID, only if
 * somebody else has the lock. It then blocks in pieces on a dedicated connection, or, without the module, waits there
 * for a message. If the script has no queue to wait in, the attempt polls. PHP does one thing at a time, so a manager
 * has one wait at a time. An attempt for a session lock uses the connection of its session from the start.
 *
 * @internal
 */
final class Attempt
{
    /** A lost reply is noticed after one piece. $while is called between pieces. */
    private const PIECE = 2.0;
    /** A server with a faster clock ends a wait a little early. */
    private const SLACK = 0.1;
    /** How many milliseconds an attempt waits for news if the reply does not specify it. */
    private const RESEND = 5000;
    /** After these errors, an attempt leaves the connection of its session to the other locks, or closes it. */
    private const MOVED = ['MOVED', 'ASK', 'CLUSTERDOWN', 'TRYAGAIN'];
    private const ROLE_CHANGED = ['READONLY', 'MASTERDOWN', 'LOADING', 'UNBLOCKED'];

    public readonly float $began;
    private string $id;
    private readonly float $deadline;
    private int $tries = 0;
    private ?Connection $connection = null;
    private ?Session $session = null;
    private bool $usesConnection;
    /** The attempt may be in the queue, or have the lock. */
    private bool $mayBeOnServer = false;
    private bool $stood = false;
    /** It is in the script's queue. */
    private bool $isQueued = false;
    /** One of its copies got no reply. */
    private bool $isUnsure = false;
    private Calls $calls;
    /** Without the module, the result of a holder that releases the lock during the wait. */
    private readonly ?StoredResult $stored;

    /**
     * @param null|\Closure(): bool $while called between the pieces of the wait; false ends it
     * @param bool $wasAsync whether signals are to be delivered here
     */
    public function __construct(
        private readonly Resources $resources,
        private readonly Keeper $keeper,
        private readonly Request $request,
        private readonly ?\Closure $while = null,
        private readonly bool $wasAsync = false,
    ) {
        $this->id = self::newId();
        $this->began = $this->resources->now();
        $this->deadline = $this->began + $request->options->wait;
        $this->usesConnection = $request->needsConnection();
        $this->calls = $resources->module->commands;
        $this->stored = $request->takesResult ? new StoredResult() : null;
    }

    private static function newId(): string
    {
        return (string) random_int(1, 999_999_999_999_999_999);
    }

    /** @throws LockException|GivenUp|Answered */
    public function run(): Grant
    {
        try {
            $this->checkpoint();
            $grant = $this->get();
            if ($this->request->options->replicas > 0 || $this->request->options->fsync) {
                $connection = $this->session?->connection ?? $this->connection
                    ?? throw new ConnectionLost('the connection that got the grant has closed');
                Replicas::confirm($connection, $this->request, $this->resources->timeout);
            }
        } catch (\Throwable $error) { // even from the application's signal handler
            $this->abandon();
            throw $error instanceof ReplyError || $error instanceof ConnectionLost ? $this->typed($error) : $error;
        }
        [$grant->session, $this->session] = [$this->session, null];
        $this->giveBackConnection();
        return $grant;
    }

    private function get(): Grant
    {
        while (true) {
            if (!$this->resources->module->isMissing()) {
                [$mightBeOnServer, $this->calls] = [$this->mayBeOnServer, $this->resources->module->commands];
                try {
                    return $this->byModule();
                } catch (ReplyError $error) {
                    if (!$error->isUnknownCommand() || !$this->resources->module->miss($error)) {
                        throw $error;
                    }
                }
                $this->mayBeOnServer = $mightBeOnServer; // the attempt may still be in the script's queue
            }
            $grant = $this->byScript();
            if ($grant !== null) {
                return $grant;
            }
        }
    }

    private function byModule(): Grant
    {
        $options = $this->request->options;
        if ($options->wait > 0 && !$options->session) {
            $this->connection = $this->resources->takeConnection();
        }
        // On a connection of its own, an attempt needs one round trip. A session has one anyway.
        $blocksAtOnce = $this->connection !== null || $options->wait > 0 && $options->session;
        if (!$blocksAtOnce) {
            $grant = $this->ask();
            if ($grant !== null) {
                return $grant;
            }
            if ($this->left() <= 0) {
                throw $this->over();
            }
        }
        return $this->byBlocking();
    }

    private function left(): float
    {
        return $this->deadline - $this->resources->now();
    }

    /**
     * Sends a copy, and further copies after errors for which a retry may help. Returns null if the reply was nil. A
     * number means that the attempt has its place in the queue, and waits that many milliseconds for news.
     */
    private function ask(float $wait = 0.0, ?string $channel = null): Grant|int|null
    {
        while (true) {
            $sent = $this->resources->now();
            $timeout = ($channel === null ? $wait : 0.0) + $this->resources->timeout;
            $send = fn (array $words): mixed => $this->exchange($words, $timeout);
            try {
                $this->request->bind($this->resources->client()->prefix());
                $reply = $this->calls->acquire($send, $this->request, $this->id, $wait, $channel);
            } catch (ReplyError | ConnectionLost $error) {
                $this->pauseAfter($error);
                $wait = $wait > 0 ? max(0.001, min($wait, $this->left())) : 0.0;
                continue;
            }
            $this->tries = 0;
            if ($channel === null) {
                return $this->granted($reply, $sent);
            }
            if ($reply === null || $reply === []) {
                return random_int(50, 150); // the copy was sent without the queue
            }
            [$first, $ms] = is_array($reply) && count($reply) === 2 ? $reply : [$reply, self::RESEND];
            if ($first !== 'WAITING') {
                return $this->granted($reply, $sent);
            }
            $this->stood = $this->isQueued = true;
            return $ms;
        }
    }

    private function granted(mixed $reply, float $sent): ?Grant
    {
        if ($reply === null) {
            return null;
        }
        if ($reply === []) { // how phpredis returns nil in place of a list
            return null;
        }
        $predecessor = null;
        if (is_array($reply) && count($reply) === 4) {
            [$reply, $overdue, $token, $owner] = $reply;
            $predecessor = $overdue === null ? null : new Predecessor($overdue / 1000, $token, $owner);
        }
        if ($this->request->takesResult && is_array($reply) && count($reply) === 1 && is_string($reply[0])) {
            $this->mayBeOnServer = false;
            throw new Answered($reply[0]);
        }
        if (!is_int($reply) || $reply <= 0) {
            throw new LockBadArgumentException($this->request->name, 'the server replied ' . json_encode($reply));
        }
        return new Grant($reply, $sent, $this->calls, $predecessor);
    }

    /** @param list<string|int|float> $words */
    private function exchange(array $words, float $timeout): mixed
    {
        $key = $this->request->key();
        if ($this->request->options->session) {
            $this->session ??= $this->resources->takeSession($key);
        } elseif ($this->usesConnection && ($this->connection === null || $this->connection->isClosed())) {
            $this->connection = $this->resources->takeConnection() ?? $this->resources->open($key);
        }
        $this->mayBeOnServer = true;
        $connection = $this->session ?? $this->connection;
        return $connection === null
            ? $this->resources->call($key, $words, $timeout)
            : $connection->call($words, $timeout, $this->checkpoint(...));
    }

    /**
     * Waits a little before the next copy, or throws if there is no next copy. The previous copy has a reply, or its
     * connection has been closed.
     */
    private function pauseAfter(ReplyError|ConnectionLost $error): void
    {
        if ($error instanceof ReplyError && $error->isUnknownCommand()) {
            throw $error;
        }
        ++$this->tries;
        $this->leaveConnection($error);
        $this->resources->client()->forget();
        if ($this->tries === 5) {
            $this->resources->logger?->warning('serverlock: the wait for {key} continues: {error}', [
                'key' => $this->request->name, 'error' => $error->getMessage(), 'exception' => $error,
            ]);
        }
        $this->isUnsure = $this->isUnsure || $error instanceof ConnectionLost;
        if (!Failures::isTransient($error) || $this->left() <= 0 && $this->tries >= 2) {
            if (!$this->isUnsure && !$this->stood) {
                $this->mayBeOnServer = false; // an error reply changes nothing
            }
            throw $error;
        }
        $longest = $this->request->options->wait > 0 ? min(0.5, 0.01 * 2 ** min($this->tries, 6)) : 0.01;
        $pause = $longest * random_int(500, 1000) / 1000;
        $this->resources->pause($this->request->options->wait > 0 ? min($pause, $this->left()) : $pause);
        $this->checkpoint();
    }

    /** The key may have moved to another server. A session's connection has other locks. */
    private function leaveConnection(ReplyError|ConnectionLost $error): void
    {
        $this->connection?->close();
        $word = $error instanceof ReplyError ? $error->word : '';
        if (in_array($word, self::ROLE_CHANGED, true)) {
            $this->session?->close();
        }
        if (in_array($word, self::MOVED, true) || $this->session?->isOpen() === false) {
            $this->giveBackSession();
        }
    }

    /** Blocks in pieces, to notice a lost reply and to let the application end the wait. */
    private function byBlocking(): Grant
    {
        do {
            $this->checkpoint();
            $this->usesConnection = true;
            $piece = max(0.001, min($this->left(), self::PIECE));
            $began = $this->resources->now();
            $grant = $this->ask($piece);
            $this->stood = true;
            if ($grant !== null) {
                if ($this->countAnew($grant)) {
                    return $grant;
                }
            } elseif ($this->resources->now() < $began + $piece - self::SLACK && $this->left() > self::SLACK) {
                $this->mayBeOnServer = false; // LOCK.CANCEL, or CLIENT UNBLOCK
                throw Failures::refused($this->request->name);
            }
        } while ($this->left() > 0);
        throw $this->over();
    }

    /**
     * The grant may be as old as the command. If the command took a long time, an EXTEND starts a new lease. Returns
     * whether the grant is still valid.
     */
    private function countAnew(Grant $grant): bool
    {
        while ($this->resources->now() >= $grant->sent + $this->request->lease / 3) {
            $sent = $this->resources->now();
            try {
                $words = $this->request->extend($grant->token, $this->request->lease);
                $reply = $this->resources->call($this->request->key(), $words, $this->resources->timeout);
            } catch (ReplyError | ConnectionLost $error) {
                $this->pauseAfter($error);
                continue;
            }
            $grant->sent = $sent;
            return $reply === 1;
        }
        return true;
    }

    /** Returns null if the attempt has to ask again, perhaps through the module. */
    private function byScript(): ?Grant
    {
        $portable = $this->resources->module->portable;
        [$this->calls, $this->usesConnection] = [$portable, $this->request->needsConnection()];
        if (!$this->usesConnection) {
            $this->giveBackConnection();
        }
        $this->bind();
        $why = $this->request->needsModule();
        if ($why !== null) {
            throw new LockUnavailableException($this->request->name, $why);
        }
        $queues = $this->request->options->wait > 0 && $portable->queues($this->request);
        $news = $queues ? new News($this->resources, $this->request, $this->id) : null;
        if ($news === null || !$news->isUp() && !$this->stood) {
            $grant = $this->askPlainly();
            if ($grant !== null) {
                return $grant;
            }
            if ($this->left() <= 0) {
                throw $this->over();
            }
        }
        if ($news !== null) {
            try {
                return $this->byMessages($news);
            } finally {
                $news->close();
            }
        }
        $this->resources->pause(min(random_int(50, 150) / 1000, $this->left()));
        $this->checkpoint();
        return null;
    }

    /** Asks without the queue. */
    private function askPlainly(): ?Grant
    {
        $grant = $this->askScript();
        $this->mayBeOnServer = $grant instanceof Grant || $this->stood || $this->isUnsure;
        return $grant instanceof Grant ? $grant : null;
    }

    /** Like ask(). A result that was stored during the wait ends the attempt, once it has the lock. */
    private function askScript(float $wait = 0.0, ?string $channel = null): Grant|int|null
    {
        $reply = $this->ask($wait, $channel);
        $send = fn (array $words): mixed
            => $this->resources->call($this->request->key(), $words, $this->resources->timeout);
        if (!$reply instanceof Grant) {
            $this->stored?->note($send, $this->request);
            return $reply;
        }
        $result = $this->stored?->newer($send, $this->request);
        if ($result === null) {
            return $reply;
        }
        try {
            $this->calls->release($send, $this->request, $reply->token);
            $this->mayBeOnServer = $this->isUnsure;
        } catch (ReplyError | ConnectionLost) { // abandon() cancels
            $this->resources->client()->forget();
        }
        throw new Answered($result);
    }

    /** Sets the prefix. To find it, phpredis may have to connect. */
    private function bind(): void
    {
        while (true) {
            try {
                $this->request->bind($this->resources->client()->prefix());
                return;
            } catch (ReplyError | ConnectionLost $error) {
                $this->pauseAfter($error);
            }
        }
    }

    /**
     * Claims the lock when a message announces its turn. A release removes attempts whose channel has no subscriber, so
     * the attempt joins the queue only once it is subscribed. Returns null if it cannot subscribe, or if it is time to
     * try the module again.
     */
    private function byMessages(News $news): ?Grant
    {
        $module = $this->resources->module;
        for ($message = null; $this->left() > 0;) {
            $this->checkpoint();
            if ($message !== 'granted' && !$module->isMissing()) {
                return null;
            }
            $news->open();
            if (!$module->portable->maySubscribe()) { // from the start, or since the user lost permission
                $this->leaveQueue();
                return null;
            }
            if (!$module->portable->queues($this->request)) {
                return null;
            }
            $joins = $news->isUp() || $this->isQueued;
            $ms = $joins ? $this->askScript($this->left(), $this->resources->channel()) : $this->askPlainly();
            if ($ms instanceof Grant) {
                return $ms;
            }
            $message = $news->wait(min(($ms ?? self::RESEND) / 1000, max(0.0, $this->left())), $this->checkpoint(...));
            if ($message === 'cancelled') {
                $this->mayBeOnServer = false;
                throw Failures::refused($this->request->name);
            }
        }
        throw $this->over();
    }

    /** Throws if the caller has given up, or a signal handler throws or closes the manager. */
    private function checkpoint(): void
    {
        $this->wasAsync && Signals::deliver();
        if ($this->resources->isClosed) {
            throw new LockMisuseException($this->request->name, 'its Locks are closed');
        }
        if ($this->while !== null && !($this->while)()) {
            throw new GivenUp();
        }
    }

    private function over(): LockException
    {
        // A place in the module's queue delays no other attempt; a place in the script's queue does.
        $isByScript = $this->calls === $this->resources->module->portable;
        $this->mayBeOnServer = $isByScript && ($this->stood || $this->isUnsure);
        return $this->request->options->wait > 0 ? $this->timedOut() : $this->refused();
    }

    /** After a RECOVER, the error says if the lock is free. */
    private function refused(): LockRefusedException
    {
        $isFree = false;
        if ($this->request->form === Form::Recovery) {
            $send = fn (array $words): mixed
                => $this->resources->call($this->request->key(), $words, $this->resources->timeout);
            try {
                $isFree = (Commands::fields($this->calls->info($send, $this->request))['state'] ?? null) === 'free';
            } catch (ReplyError | ConnectionLost) { // this user may not ask, or nobody answers
                $this->resources->client()->forget();
            }
        }
        return Failures::refused($this->request->name, $isFree);
    }

    private function timedOut(): LockTimeoutException
    {
        return Failures::timedOut($this->request->name, $this->resources->now() - $this->began);
    }

    private function typed(ReplyError|ConnectionLost $error): LockException
    {
        $waited = $this->request->options->wait > 0 ? $this->resources->now() - $this->began : null;
        return Failures::typed($error, $this->request->name, $waited);
    }

    private function giveBackConnection(): void
    {
        $this->connection === null || $this->resources->giveBackConnection($this->connection);
        $this->connection = null;
    }

    private function giveBackSession(): void
    {
        [$session, $this->session] = [$this->session, null];
        if ($session !== null) {
            $session->giveBack();
            $session->isOpen() || $this->keeper->loseAll($session);
        }
    }

    /**
     * Gives up the place in the script's queue. A late cancel must not release a lock that the attempt gets by polling,
     * so the attempt continues with a new ID.
     */
    private function leaveQueue(): void
    {
        if ($this->mayBeOnServer) {
            $this->cancel();
            $this->id = self::newId();
            $this->mayBeOnServer = $this->stood = $this->isQueued = $this->isUnsure = false;
        }
    }

    /** Leaves the queue, and releases a grant whose reply was lost. */
    private function abandon(): void
    {
        $session = $this->session;
        $this->giveBackSession();
        $this->giveBackConnection();
        if ($this->mayBeOnServer) {
            $this->cancel();
        }
        $session?->settle();
    }

    /**
     * Cancels at once if the server replies, otherwise in a later call to the manager. The script does not block the
     * ID, so the attempt is cancelled a second time if a copy may still run.
     */
    private function cancel(): void
    {
        [$resources, $request, $id, $calls] = [$this->resources, $this->request, $this->id, $this->calls];
        $channel = $resources->channel();
        $module = $resources->module;
        $settle = static function () use ($resources, $request, $id, $calls, $channel, $module): void {
            $send = static fn (array $words): mixed
                => $resources->call($request->key(), $words, $resources->patience());
            try {
                $calls->cancel($send, $request, $id, $channel);
            } catch (ReplyError $error) {
                if ($calls === $module->portable || !$module->isReplaced($error, $request)) {
                    throw $error;
                }
                $module->portable->cancel($send, $request, $id, $channel);
            }
        };
        $until = $this->resources->now() + max($request->lease + Hold::STILL_RUNS, $resources->timeout);
        if ($this->isUnsure && ($calls === $module->portable || $module->isMissing())) {
            $resources->debts->add($this->resources->now() + Hold::STILL_RUNS, $until, $settle);
        }
        try {
            $settle();
        } catch (ReplyError | ConnectionLost $error) {
            if (Failures::isTransient($error)) {
                $resources->debts->add($this->resources->now(), $until, $settle);
            }
        }
    }
}
