<?php

declare(strict_types=1);

namespace Serverlock\Core;

/**
 * The server's clock, and the margin that the server adds to leases: each is requested at most once a minute.
 *
 * @internal
 */
final class ServerClock
{
    /** How long a reply stays valid. */
    private const VALID_FOR = 60.0;
    private const PAUSE = 0.01;
    private const USUAL_MARGIN = 1.0;

    /** @var array<string, Estimate> by key in a cluster, because each of its servers has its own clock */
    private array $known = [];
    private float $margin = self::USUAL_MARGIN;
    private float $marginAsked = -INF;

    public function __construct(private readonly Resources $resources)
    {
    }

    /**
     * Estimates the clock of the server that has the key.
     *
     * @throws ReplyError|ConnectionLost
     */
    public function read(string $key): Estimate
    {
        $place = $this->resources->client()->isCluster() ? $key : '';
        $oldest = $this->resources->now() - self::VALID_FOR;
        $this->known = array_filter($this->known, static fn (Estimate $it): bool => $oldest < $it->asked);
        $found = $this->known[$place] ?? $this->ask($key);
        if ($found->isGood()) {
            $this->known[$place] = $found;
        }
        return $found;
    }

    /** The margin, as currently known. */
    public function knownMargin(): float
    {
        return $this->margin;
    }

    /** What the server adds to the lease of this hold. */
    public function marginOf(Hold $hold): float
    {
        if ($hold->calls === $this->resources->module->portable) {
            return Portable::MARGIN / 1000;
        }
        if ($this->resources->now() >= $this->marginAsked + self::VALID_FOR) {
            $this->askMargin($hold->request->key());
        }
        return $this->margin;
    }

    /** Asks twice if the reply is lost or slow. */
    private function ask(string $key): Estimate
    {
        try {
            $first = $this->call($key);
        } catch (ReplyError | ConnectionLost $error) {
            $this->resources->client()->forget();
            if (!Failures::isTransient($error)) {
                throw $error;
            }
            $this->resources->pause(self::PAUSE);
            return $this->call($key);
        }
        if ($first->isGood()) {
            return $first;
        }
        try { // it may have had to wait for a new connection
            $second = $this->call($key);
        } catch (ReplyError | ConnectionLost) {
            $this->resources->client()->forget();
            return $first;
        }
        return $second->doubt < $first->doubt ? $second : $first;
    }

    private function call(string $key): Estimate
    {
        $sent = $this->resources->now();
        $reply = $this->resources->call($key, ['TIME'], $this->resources->timeout);
        return Estimate::of($reply, $sent, $this->resources->now());
    }

    /** After an error reply, the last margin stays valid: this user may not ask. */
    private function askMargin(string $key): void
    {
        try {
            $fields = Commands::fields($this->resources->call($key, ['LOCK.INFO', $key], $this->resources->timeout));
        } catch (ConnectionLost) {
            $this->resources->client()->forget();
            return;
        } catch (ReplyError) {
            $this->marginAsked = $this->resources->now();
            return;
        }
        $this->marginAsked = $this->resources->now();
        [$lease, $free] = [$fields['lease-ms'] ?? 0, $fields['free-in-ms'] ?? null];
        // Both are whole milliseconds, one rounded down and the other up.
        $this->margin = $lease && is_int($free) ? max(0, $free - $lease - 1) / 1000 : self::USUAL_MARGIN;
    }
}
