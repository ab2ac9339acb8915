<?php

declare(strict_types=1);

namespace Serverlock\Tests\Driver;

use Serverlock\Exception\LockLostException;
use Serverlock\Held;
use Serverlock\Locks;

/** A child that unwinds its parent's scope, checks the hold, takes its own lock, and ends. */
final class Fork
{
    private int $child = 0;
    /** @var array{resource, resource} */
    private array $pair;

    public function __construct(private readonly Locks $locks, private readonly Held $held)
    {
        $pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, STREAM_IPPROTO_IP);
        if ($pair === false) {
            throw new \RuntimeException('no pair of sockets');
        }
        $this->pair = [$pair[0], $pair[1]];
    }

    public function begin(): void
    {
        $this->child = pcntl_fork();
        fclose($this->pair[$this->child === 0 ? 0 : 1]);
        if ($this->child === 0) {
            throw new Forked('the child unwinds the scope');
        }
    }

    /** @return array<string, mixed> what the child reported */
    public function end(): array
    {
        $report = (string) stream_get_contents($this->pair[0]);
        pcntl_waitpid($this->child, $status);
        return json_decode($report, true, flags: JSON_THROW_ON_ERROR);
    }

    public function inTheChild(): never
    {
        $report = ['check' => 'held'];
        try {
            try {
                $this->held->check();
            } catch (LockLostException) {
                $report['check'] = 'lost';
            }
            $report['own'] = $this->locks->lock("the child's", 5)->acquire()->release();
        } catch (\Throwable $error) {
            $report['error'] = (string) $error;
        }
        fwrite($this->pair[1], json_encode($report, JSON_THROW_ON_ERROR));
        exit(0);
    }
}
