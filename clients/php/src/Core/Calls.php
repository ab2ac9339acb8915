<?php

declare(strict_types=1);

namespace Serverlock\Core;

/**
 * How locks are asked for: by the commands of the module, or by script without it. $send is one exchange with the
 * server of the lock; it throws ReplyError or ConnectionLost.
 *
 * @internal
 */
interface Calls
{
    /**
     * One copy of an attempt. With a channel it joins the queue, and is notified there.
     *
     * @param \Closure(list<string|int|float>): mixed $send
     */
    public function acquire(\Closure $send, Request $request, string $id, float $wait, ?string $channel): mixed;

    /**
     * Ends an attempt: its wait, and what it may have been granted.
     *
     * @param \Closure(list<string|int|float>): mixed $send
     */
    public function cancel(\Closure $send, Request $request, string $id, string $channel): void;

    /** @param \Closure(list<string|int|float>): mixed $send */
    public function extend(\Closure $send, Request $request, int $token, float $lease): mixed;

    /** @param \Closure(list<string|int|float>): mixed $send */
    public function release(\Closure $send, Request $request, int $token): mixed;

    /**
     * The milliseconds that are left of that key of the request.
     *
     * @param \Closure(list<string|int|float>): mixed $send
     */
    public function check(\Closure $send, Request $request, int $token, int $at): mixed;

    /** A script that runs a command if the lock is held: the lock is its first key, the token its first argument. */
    public function fenced(): string;
}
