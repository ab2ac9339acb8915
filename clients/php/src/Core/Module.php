<?php

declare(strict_types=1);

namespace Serverlock\Core;

use Psr\Log\LoggerInterface;

/**
 * Whether the server has the module: with it, locks use LOCK.*; without it, the script.
 *
 * @internal
 */
final class Module
{
    /** How long new attempts go without probing for a module that was missing. */
    private const ASK_AGAIN = 5.0;

    public readonly Commands $commands;
    public readonly Portable $portable;
    private float $missingUntil = -INF;

    public function __construct(
        private readonly bool $mayBeScript,
        private bool $mayWarn,
        private readonly ?LoggerInterface $logger,
        private readonly Time $clock,
    ) {
        $this->commands = new Commands();
        $this->portable = new Portable($clock);
    }

    /** How to send the next command. */
    public function calls(): Calls
    {
        return $this->isMissing() ? $this->portable : $this->commands;
    }

    /** Whether to use the scripts, because the server did not know LOCK.* a moment ago. */
    public function isMissing(): bool
    {
        return $this->clock->now() < $this->missingUntil;
    }

    /** Records that the server does not know LOCK.*. Returns whether to continue with the scripts. */
    public function miss(ReplyError $error): bool
    {
        if (!$this->mayBeScript) {
            return false;
        }
        if ($this->mayWarn) {
            $this->mayWarn = false;
            $text = 'serverlock: the server has no LOCK.*: locks work through a script, in order of arrival; '
                . 'session, blocking waits and deadlock detection need the module: ';
            $this->logger === null
                ? error_log($text . $error->getMessage()) // where PHP writes its own warnings; it does not throw
                : $this->logger->warning("$text{error}", ['error' => $error->getMessage()]);
        }
        $this->missingUntil = $this->clock->now() + self::ASK_AGAIN;
        return true;
    }

    /** Whether the script can replace the command that the server does not know. */
    public function isReplaced(ReplyError $error, Request $request): bool
    {
        return $error->isUnknownCommand() && $this->mayBeScript && $request->needsModule() === null;
    }

    /** Returns whether to send a command of a held lock again, because the server has lost the module. */
    public function wasLost(Hold $hold, ReplyError $error): bool
    {
        if ($hold->calls !== $this->commands || !$this->isReplaced($error, $hold->request)) {
            return false;
        }
        $hold->calls = $this->portable;
        return true;
    }
}
