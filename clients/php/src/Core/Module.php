<?php

declare(strict_types=1);

namespace Serverlock\Core;

use Psr\Log\LoggerInterface;

/**
 * Whether the server has the module, and the commands for a lock that is held: LOCK.* with the module, scripts without
 * it.
 *
 * @internal
 */
final class Module
{
    /** How long a new attempt does not ask for a module that was missing. */
    private const ASK_AGAIN = 5.0;

    public readonly Portable $portable;
    private float $missingUntil = -INF;

    public function __construct(
        private readonly bool $mayBeScript,
        private bool $mayWarn,
        private readonly ?LoggerInterface $logger,
    ) {
        $this->portable = new Portable();
    }

    /** Whether to use the scripts, because the server did not know LOCK.* a moment ago. */
    public function isMissing(): bool
    {
        return Clock::now() < $this->missingUntil;
    }

    /** Records that the server does not know LOCK.*. Returns whether to continue with the scripts. */
    public function miss(ReplyError $error): bool
    {
        if (!$this->mayBeScript) {
            return false;
        }
        if ($this->mayWarn) {
            $this->mayWarn = false;
            $text = 'serverlock: the server has no LOCK.*; locks work by script, without order among waiters: ';
            $this->logger === null
                ? error_log($text . $error->getMessage()) // where PHP writes its own warnings; it throws nothing
                : $this->logger->warning("$text{error}", ['error' => $error->getMessage()]);
        }
        $this->missingUntil = Clock::now() + self::ASK_AGAIN;
        return true;
    }

    /** Returns whether to send a command of a held lock again, because the server has lost the module or the script. */
    public function wasLost(Hold $hold, ReplyError $error): bool
    {
        if ($error->word === 'NOSCRIPT' && $hold->isPortable) {
            $this->portable->missed();
            return true;
        }
        if (!$error->isUnknownCommand() || $hold->isPortable || $hold->request->needsModule() !== null) {
            return false;
        }
        return $hold->isPortable = $this->mayBeScript;
    }

    /** @return list<string|int|float> */
    public function check(Hold $hold, string $key): array
    {
        return $hold->isPortable
            ? $this->portable->words($hold->request, 'lock_check', $hold->token)
            : ['LOCK.CHECK', $key, $hold->token];
    }

    /** @return list<string|int|float> */
    public function extend(Hold $hold, float $lease): array
    {
        if (!$hold->isPortable) {
            return $hold->request->extend($hold->token, $lease);
        }
        $ms = Request::milliseconds($lease);
        return $this->portable->words($hold->request, 'lock_extend', $hold->token, 'PX', $ms);
    }

    /** @return list<string|int|float> */
    public function release(Hold $hold): array
    {
        return $hold->isPortable
            ? $this->portable->words($hold->request, 'lock_release', $hold->token)
            : $hold->request->release($hold->token);
    }
}
