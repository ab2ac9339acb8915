<?php

declare(strict_types=1);

namespace Serverlock\Tests\Driver;

use Psr\Log\AbstractLogger;

/** Logs to stderr. */
final class StderrLogger extends AbstractLogger
{
    /**
     * @param mixed $level
     * @param string $message
     * @param array<string, mixed> $context
     */
    public function log($level, $message, array $context = []): void
    {
        $values = [];
        foreach ($context as $name => $value) {
            $values["{{$name}}"] = is_scalar($value) ? (string) $value : '';
        }
        fwrite(STDERR, sprintf("%s %d %s: %s\n", date('H:i:s'), getmypid(), $level, strtr($message, $values)));
    }
}
