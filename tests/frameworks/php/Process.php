<?php

declare(strict_types=1);

namespace Serverlock\Frameworks;

/** A process of an application. */
final class Process
{
    /** @var resource */
    private $process;
    public readonly int $pid;
    private ?int $status = null;
    private bool $isKilled = false;

    /**
     * @param list<string> $command
     * @param array<string, string> $environment
     */
    public function __construct(array $command, array $environment, string $log)
    {
        $log = ['file', $log, 'a'];
        $files = [['file', '/dev/null', 'r'], $log, $log];
        $process = proc_open($command, $files, $pipes, null, $environment);
        if ($process === false) {
            throw new \RuntimeException("cannot be started: $command[0]");
        }
        $this->process = $process;
        $this->pid = proc_get_status($process)['pid'];
    }

    /** Its exit status; null while it runs. */
    public function status(): ?int
    {
        if ($this->status === null) {
            $now = proc_get_status($this->process); // only the first one after the end has the status
            $this->status = $now['running'] ? null : $now['exitcode'];
        }
        return $this->status;
    }

    public function hasFailed(): bool
    {
        return !$this->isKilled && ($this->status() ?? 0) !== 0;
    }

    public function kill(): void
    {
        if ($this->status() === null) {
            $this->isKilled = true;
            posix_kill($this->pid, SIGKILL);
        }
    }
}
