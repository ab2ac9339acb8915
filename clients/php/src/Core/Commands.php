<?php

declare(strict_types=1);

namespace Serverlock\Core;

/**
 * The module's commands. Attempts block, and need no channel.
 *
 * @internal
 */
final class Commands implements Calls
{
    private const TOO_LONG = 'ERR result is longer';

    public function acquire(\Closure $send, Request $request, string $id, float $wait, ?string $channel): mixed
    {
        return $send($request->acquire($id, $wait));
    }

    public function cancel(\Closure $send, Request $request, string $id, string $channel): void
    {
        foreach ($request->sentKeys() as $key) {
            $send(['LOCK.CANCEL', $key, $id]);
        }
    }

    public function extend(\Closure $send, Request $request, int $token, float $lease): mixed
    {
        return $send($request->extend($token, $lease));
    }

    public function release(\Closure $send, Request $request, int $token, ?string $result = null): mixed
    {
        try {
            return $send($request->release($token, $result));
        } catch (ReplyError $error) {
            if ($result === null || !str_starts_with($error->getMessage(), self::TOO_LONG)) {
                throw $error;
            }
        }
        return $send($request->release($token));
    }

    public function check(\Closure $send, Request $request, int $token, int $at): mixed
    {
        return $send(['LOCK.CHECK', $request->sentKeys()[$at], $token]);
    }

    public function info(\Closure $send, Request $request): mixed
    {
        return $send(['LOCK.INFO', $request->key()]);
    }

    /**
     * The fields of a reply to LOCK.INFO.
     *
     * @return array<string, mixed>
     */
    public static function fields(mixed $reply): array
    {
        $fields = [];
        for ($at = 0, $end = is_array($reply) ? count($reply) - 1 : 0; $at < $end; $at += 2) {
            $fields[$reply[$at]] = $reply[$at + 1];
        }
        return $fields;
    }

    public function fenced(): string
    {
        return <<<'LUA'
            if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) == 0 then return {'LOCK.LOST'} end
            local reply = redis.call(unpack(ARGV, 2))
            return {type(reply) == 'table' and reply.ok or reply}
            LUA;
    }
}
