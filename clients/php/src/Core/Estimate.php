<?php

declare(strict_types=1);

namespace Serverlock\Core;

/**
 * What is known about a server's clock.
 *
 * @internal
 */
final class Estimate
{
    /** An estimate that may be off by more than this is used, but not kept. */
    public const MOST_DOUBT = 0.25;

    /**
     * @param float $offset the server's time since 1970, minus the local clock
     * @param float $doubt by how much the offset may be off
     * @param float $asked local time
     */
    public function __construct(
        public readonly float $offset,
        public readonly float $doubt,
        public readonly float $asked,
    ) {
    }

    /**
     * Reads a reply to TIME. The server read its clock at some moment between $sent and $received.
     *
     * @throws ReplyError
     */
    public static function of(mixed $reply, float $sent, float $received): self
    {
        [$seconds, $micros] = is_array($reply) ? [...array_values($reply), null, null] : [null, null];
        if (!is_numeric($seconds) || !is_numeric($micros)) {
            throw new ReplyError('ERR unexpected reply ' . json_encode($reply) . ' to TIME');
        }
        $server = (int) $seconds + (int) $micros / 1e6;
        return new self($server - ($sent + $received) / 2, ($received - $sent) / 2, $received);
    }

    /** Whether it is accurate enough to be kept. */
    public function isGood(): bool
    {
        return $this->doubt <= self::MOST_DOUBT;
    }
}
