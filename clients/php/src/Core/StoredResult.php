<?php

declare(strict_types=1);

namespace Serverlock\Core;

/**
 * The results of a lock without the module. A holder stores its result at a key of its own before it releases the lock.
 * Those that wait get the lock in turn, and the result with it if it was stored while they waited. If that fails, each
 * of them computes.
 *
 * @internal
 */
final class StoredResult
{
    private const LONGEST = 65_536;

    /** Whether the key was read when the wait began. */
    private bool $isNoted = false;
    /** The token of the result that was there; false: it could not be read. */
    private string|false|null $before = null;

    /** @param \Closure(list<string|int|float>): mixed $send */
    public static function store(\Closure $send, Request $request, int $token, string $result): void
    {
        $key = $request->resultKey();
        if ($key === null || strlen($result) > self::LONGEST) {
            return;
        }
        try {
            $send(['SET', $key, "$token $result", 'PX', Request::milliseconds($request->lease)]);
        } catch (ReplyError) {
            // the lock is released all the same
        }
    }

    /**
     * Notes what is stored when the attempt begins to wait.
     *
     * @param \Closure(list<string|int|float>): mixed $send
     */
    public function note(\Closure $send, Request $request): void
    {
        if ($this->isNoted) {
            return;
        }
        $this->isNoted = true;
        $this->before = self::read($send, $request)[0];
    }

    /**
     * The result that was stored while the attempt waited.
     *
     * @param \Closure(list<string|int|float>): mixed $send
     */
    public function newer(\Closure $send, Request $request): ?string
    {
        if (!$this->isNoted || $this->before === false) {
            return null;
        }
        [$token, $result] = self::read($send, $request);
        return (int) $token > (int) $this->before ? $result : null;
    }

    /**
     * The token and the result. Without a result both are null; if it cannot be read, they are false and null.
     *
     * @param \Closure(list<string|int|float>): mixed $send
     * @return array{string|false|null, ?string}
     */
    private static function read(\Closure $send, Request $request): array
    {
        $key = $request->resultKey();
        try {
            $value = $key === null ? null : $send(['GET', $key]);
        } catch (ReplyError | ConnectionLost) {
            return [false, null];
        }
        $parts = is_string($value) ? explode(' ', $value, 2) : [];
        return count($parts) === 2 ? $parts : [null, null];
    }
}
