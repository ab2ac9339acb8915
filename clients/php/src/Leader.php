<?php

declare(strict_types=1);

namespace Serverlock;

use Serverlock\Core\ConnectionLost;
use Serverlock\Core\Commands;
use Serverlock\Core\Engine;
use Serverlock\Core\GivenUp;
use Serverlock\Core\Request;
use Serverlock\Core\ReplyError;
use Serverlock\Core\Scope;
use Serverlock\Exception\LockBadArgumentException;
use Serverlock\Exception\LockException;
use Serverlock\Exception\LockLostException;
use Serverlock\Exception\LockMisuseException;
use Serverlock\Exception\LockTimeoutException;

/** Campaigns for a key. The key's lock is held for as long as its holder lives. */
final class Leader
{
    private bool $isStopped = false;
    private readonly float $pause;

    /** @internal */
    public function __construct(private readonly Engine $engine, private readonly Request $request)
    {
        $this->pause = min(1.0, $request->lease / 3);
    }

    /**
     * Campaigns until it is stopped, and calls $lead each time it is elected. $lead must call its Held's check() before
     * each step. When $lead returns, this process steps down, and campaigns again after others have had their turn.
     * When the leadership is lost, check() throws LockLostException; let it through, and the campaign continues. Any
     * other exception from $lead ends the campaign.
     *
     * @param callable(Held): mixed $lead
     * @param null|callable(): bool $while asked every two seconds or sooner while somebody else leads; false ends the
     *     campaign
     * @throws LockBadArgumentException|LockMisuseException errors that no retry can fix
     */
    public function run(callable $lead, ?callable $while = null): void
    {
        (new Scope($this->engine, $this->request->name))->refuseGenerator($lead);
        $this->isStopped = false;
        $goesOn = fn (): bool => !$this->isStopped && ($while === null || $while());
        $known = '';
        while ($goesOn()) {
            try {
                $held = $this->engine->acquire($this->request, $goesOn);
            } catch (GivenUp) {
                return;
            } catch (LockBadArgumentException | LockMisuseException $error) {
                throw $error;
            } catch (LockException $error) {
                if (!$error instanceof LockTimeoutException) {
                    if ($known !== $error->getMessage()) {
                        $known = $error->getMessage();
                        $context = ['error' => $known];
                        $logger = $this->engine->resources->logger;
                        $logger?->warning('serverlock: campaigning failed; trying again: {error}', $context);
                    }
                    $this->engine->resources->pause($this->pause);
                }
                continue;
            }
            $known = '';
            $this->lead($held, $lead);
            if ($goesOn()) {
                $this->engine->resources->pause($this->pause); // so that others can be elected
            }
        }
    }

    /**
     * Ends the campaign once $lead returns, or at the end of the current piece of the wait. $lead and signal handlers
     * may call this.
     */
    public function stop(): void
    {
        $this->isStopped = true;
    }

    /** The current leader. */
    public function look(): Leadership
    {
        try {
            return $this->ask();
        } catch (ReplyError | ConnectionLost) {
            return new Leadership(null, null);
        }
    }

    /**
     * Yields the current leader, and then each change. It asks the server three times per lease.
     *
     * @return \Generator<int, Leadership, void, never>
     */
    public function observe(): \Generator
    {
        $before = -1;
        while (true) {
            try {
                $now = $this->ask();
                if ($now->token !== $before) {
                    $before = $now->token;
                    yield $now;
                }
            } catch (ReplyError | ConnectionLost) {
                // the leader is unknown for now
            }
            $this->engine->resources->pause($this->request->lease / 3);
        }
    }

    /** @param callable(Held): mixed $lead */
    private function lead(Held $held, callable $lead): void
    {
        try {
            $lead($held);
        } catch (LockLostException $lost) {
            if ($held->isHeld()) {
                throw $lost; // the error is about another lock
            }
        } finally {
            try {
                $held->release();
            } catch (LockMisuseException) {
                // $lead has released it
            } catch (LockException $error) {
                $context = ['error' => $error->getMessage()];
                $this->engine->resources->logger?->warning('serverlock: stepping down: {error}', $context);
            }
        }
    }

    private function ask(): Leadership
    {
        $resources = $this->engine->resources;
        $this->request->bind($resources->client()->prefix());
        $key = $this->request->key();
        $call = static fn (string ...$words): mixed => $resources->call($key, $words, $resources->timeout);
        try {
            try {
                return self::read($call('LOCK.INFO', $key));
            } catch (ReplyError $error) {
                if (!$error->isUnknownCommand()) {
                    throw $error;
                }
                $value = $call('GET', $key);
                return self::parse($value, $call('TIME'));
            }
        } catch (ReplyError | ConnectionLost $error) {
            $resources->client()->forget();
            throw $error;
        }
    }

    private static function read(mixed $reply): Leadership
    {
        $fields = Commands::fields($reply);
        $token = $fields['token'] ?? null;
        return ($fields['state'] ?? null) === 'held' && is_int($token)
            ? new Leadership($token, $fields['owner'] ?? null)
            : new Leadership(null, null);
    }

    /** Parses what the scripts write: the end including the margin, the token, the ID, and the owner. */
    private static function parse(mixed $value, mixed $time): Leadership
    {
        $form = '/\A(\d{10}\.\d{6})(\d{16})(?:\d{19})?(?: ([!-~]+))?\z/';
        $isOurs = is_string($value) && preg_match($form, $value, $found) === 1;
        if (!$isOurs || (float) ($found[1] ?? 0) <= (float) vsprintf('%d.%06d', (array) $time)) {
            return new Leadership(null, null);
        }
        return new Leadership((int) ($found[2] ?? 0), $found[3] ?? null);
    }
}
