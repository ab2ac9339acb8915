<?php

declare(strict_types=1);

namespace Serverlock\Tests\Driver;

/** The orders that a worker reads. */
final class Orders
{
    private string $buffer = '';

    public function __construct()
    {
        stream_set_blocking(STDIN, false);
    }

    /**
     * The next order if one comes within this many seconds; null: waits without a limit. The process ends when its
     * input does, and releases nothing.
     *
     * @return array<string, mixed>|null
     */
    public function next(?float $within = null): ?array
    {
        while (($end = strpos($this->buffer, "\n")) === false) {
            [$read, $none] = [[STDIN], null];
            $seconds = $within === null ? null : (int) $within;
            if (!@stream_select($read, $none, $none, $seconds, (int) (fmod($within ?? 0, 1) * 1e6))) {
                return null;
            }
            $this->buffer .= fread(STDIN, 65536);
            if (feof(STDIN)) {
                posix_kill((int) getmypid(), SIGKILL);
            }
        }
        $line = substr($this->buffer, 0, $end);
        $this->buffer = substr($this->buffer, $end + 1);
        return json_decode($line, true, flags: JSON_THROW_ON_ERROR);
    }
}
