<?php

declare(strict_types=1);

namespace Serverlock\Core;

/**
 * The ways to ask for locks: with the module's commands, or with a script where the module is missing. $send is one
 * exchange with the lock's server; it throws ReplyError or ConnectionLost.
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
     * Ends an attempt: its wait, and the lock that it may have been granted.
     *
     * @param \Closure(list<string|int|float>): mixed $send
     */
    public function cancel(\Closure $send, Request $request, string $id, string $channel): void;

    /** @param \Closure(list<string|int|float>): mixed $send */
    public function extend(\Closure $send, Request $request, int $token, float $lease): mixed;

    /**
     * With a result, the attempts that wait for one get it, unless it is too long or cannot be stored.
     *
     * @param \Closure(list<string|int|float>): mixed $send
     */
    public function release(\Closure $send, Request $request, int $token, ?string $result = null): mixed;

    /**
     * The milliseconds left for the request's key at that index.
     *
     * @param \Closure(list<string|int|float>): mixed $send
     */
    public function check(\Closure $send, Request $request, int $token, int $at): mixed;

    /**
     * LOCK.INFO of the request's first key.
     *
     * @param \Closure(list<string|int|float>): mixed $send
     */
    public function info(\Closure $send, Request $request): mixed;

    /** A script that runs a command if the lock is held: the lock is its first key, the token its first argument. */
    public function fenced(): string;
}
