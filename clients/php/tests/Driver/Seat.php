<?php

declare(strict_types=1);

namespace Serverlock\Tests\Driver;

/** The dispatcher's view of a worker. */
final class Seat
{
    /** @var array<int, array<string, mixed>> orders without an answer */
    public array $pending = [];
    /** @var array<string, true> locks that it holds */
    public array $holds = [];
    /** Whether the worker gets no other orders: a campaign or an observer never ends, and ticks have one process. */
    public bool $isTaken = false;
    /** @var array<int, true> */
    private array $isCancelled = [];
    /** @var array<int, true> */
    private array $hasBegun = [];
    /** @var resource */
    public $output;
    /** @var resource */
    private $input;
    /** @var resource */
    private $process;
    private readonly int $pid;
    private string $buffer = '';
    private bool $hasEnded = false;

    /** @param list<string> $command */
    public function __construct(array $command)
    {
        $process = proc_open($command, [['pipe', 'r'], ['pipe', 'w'], STDERR], $pipes);
        if ($process === false) {
            throw new \RuntimeException('a worker cannot be started');
        }
        [$this->process, $this->input, $this->output] = [$process, $pipes[0], $pipes[1]];
        $this->pid = proc_get_status($process)['pid'];
        stream_set_blocking($this->output, false);
    }

    /** @param array<string, mixed> $order */
    public function tell(array $order): void
    {
        if ($order['n'] > 0) {
            $this->pending[$order['n']] = $order;
        }
        $this->isTaken = $this->isTaken || in_array($order['do'], ['lead', 'observe'], true)
            || $order['do'] === 'once' && !isset($order['scope']);
        fwrite($this->input, json_encode($order, JSON_THROW_ON_ERROR) . "\n");
    }

    /**
     * Records an answer. Returns whether it was expected.
     *
     * @param array<string, mixed> $line
     */
    public function answered(array $line): bool
    {
        $order = $this->pending[$line['n']] ?? null;
        unset($this->pending[$line['n']]);
        if ($order !== null && isset($line['ok']) && isset($order['hold'])) {
            if ($order['do'] === 'acquire') {
                $this->holds[$order['hold']] = true;
            } elseif (in_array($order['do'], ['release', 'drop'], true)) {
                unset($this->holds[$order['hold']]);
            }
        }
        return $order !== null;
    }

    /** @return list<string|null> the lines that it has written; null when it has ended */
    public function said(): array
    {
        $this->buffer .= fread($this->output, 65536);
        $lines = explode("\n", $this->buffer);
        $this->buffer = array_pop($lines);
        if (feof($this->output) && !$this->hasEnded) {
            $this->hasEnded = true;
            $lines[] = null;
        }
        return $lines;
    }

    /** Interrupts a pending acquire with a signal, once the acquire has begun. */
    public function cancel(int $n): void
    {
        if (isset($this->pending[$n])) {
            $this->isCancelled[$n] = true;
            $this->interrupt($n);
        }
    }

    public function began(int $n): void
    {
        $this->hasBegun[$n] = true;
        $this->interrupt($n);
    }

    private function interrupt(int $n): void
    {
        if (isset($this->pending[$n], $this->isCancelled[$n], $this->hasBegun[$n])) {
            posix_kill($this->pid, SIGUSR1);
        }
    }

    public function kill(): void
    {
        posix_kill($this->pid, SIGKILL);
        proc_close($this->process);
    }
}
