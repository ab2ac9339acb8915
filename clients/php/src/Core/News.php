<?php

declare(strict_types=1);

namespace Serverlock\Core;

use Serverlock\Wire\Subscription;

/**
 * The messages for one attempt that waits in the script's queue. The attempt asks again after a message, or after a
 * while.
 *
 * @internal
 */
final class News
{
    /** How often to check whether the caller continues. */
    private const PIECE = 2.0;
    /** How often to ask again while the attempt cannot be notified. */
    private const RESEND_DOWN = 1.0;

    private ?Subscription $subscription;

    public function __construct(
        private readonly Resources $resources,
        private readonly Request $request,
        private readonly string $id,
    ) {
        $this->subscription = $resources->takeSubscription();
    }

    public function isUp(): bool
    {
        return $this->subscription !== null;
    }

    /** Subscribes if necessary, and drops earlier messages, which do not concern a new call. */
    public function open(): void
    {
        if ($this->subscription?->isOpen() === true) {
            return;
        }
        $this->subscription = null;
        try {
            $this->subscription = $this->resources->subscribe($this->request->key());
        } catch (ReplyError | ConnectionLost $error) {
            // A temporary error only means that there is no connection for the moment.
            Failures::isTransient($error) || $this->resources->module->portable->withoutSubscription();
        }
    }

    /**
     * Returns the next message's text, or null if it is time to ask again.
     *
     * @param \Closure(): void $checkpoint throws if the caller has given up
     */
    public function wait(float $seconds, \Closure $checkpoint): ?string
    {
        $end = $this->resources->now() + ($this->subscription === null ? min($seconds, self::RESEND_DOWN) : $seconds);
        while (($left = $end - $this->resources->now()) > 0) {
            if ($this->subscription === null) {
                $this->resources->pause(min($left, self::PIECE));
                $checkpoint();
                continue;
            }
            try {
                $text = $this->subscription->next(min($left, self::PIECE), $checkpoint);
            } catch (ConnectionLost) {
                $this->resources->pause(min(0.05, $left)); // the connection may be lost again and again
                return null;
            }
            $checkpoint();
            [$kind, $id] = explode(' ', "$text  ");
            if ($id === $this->id) {
                return $kind;
            }
        }
        return null;
    }

    public function close(): void
    {
        $this->subscription === null || $this->resources->giveBackSubscription($this->subscription);
        $this->subscription = null;
    }
}
