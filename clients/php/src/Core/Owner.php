<?php

declare(strict_types=1);

namespace Serverlock\Core;

use Serverlock\DefaultOwner;

/**
 * The OWNER of a lock, as it is sent. Unless the caller names one, it names this process.
 *
 * @internal
 */
final class Owner
{
    public const LONGEST = 128;
    /** @var array{int, string} the process that asked last, and its label; a fork changes the process */
    private static array $known = [0, ''];

    public static function label(DefaultOwner|string $owner): string
    {
        if (is_string($owner)) {
            return $owner;
        }
        $pid = (int) getmypid();
        if (self::$known[0] !== $pid) {
            self::$known = [$pid, self::of((string) gethostname(), $pid)];
        }
        return self::$known[1];
    }

    /** Each character of the host's name that is not visible ASCII becomes a question mark. */
    public static function of(string $host, int $pid): string
    {
        $visible = preg_replace('/[^!-~]/u', '?', $host) ?? preg_replace('/[^!-~]/', '?', $host);
        return substr((string) $visible, 0, self::LONGEST - strlen(":$pid")) . ":$pid";
    }
}
