<?php

declare(strict_types=1);

namespace Serverlock\Core;

/**
 * An error reply from the server.
 *
 * @internal
 */
final class ReplyError extends \RuntimeException
{
    public readonly string $word;

    public function __construct(string $text, ?\Throwable $previous = null)
    {
        parent::__construct($text, 0, $previous);
        $this->word = preg_match('/^[A-Z]+(?= )/', $text, $found) ? $found[0] : 'ERR';
    }

    /** Within a script, Redis says "unknown redis command". */
    public function isUnknownCommand(): bool
    {
        return preg_match('/^ERR unknown (redis )?command/i', $this->getMessage()) === 1;
    }
}
