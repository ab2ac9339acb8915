<?php

declare(strict_types=1);

namespace Serverlock\Tests;

/** A test's own server, on a free port, in its own folder; ended by its process ID. */
final class Server
{
    public readonly int $port;
    private readonly string $folder;
    /** @var resource */
    private $process;
    public readonly int $pid;

    public function __construct(bool $hasModule = true, string ...$options)
    {
        do { // below the ports that the system gives to connections, and with room for the cluster bus
            $port = random_int(10_000, 22_000);
        } while (!self::isFree($port) || !self::isFree($port + 10_000));
        $this->port = $port;
        $this->folder = sys_get_temp_dir() . '/serverlock-php-' . getmypid() . "-$this->port";
        mkdir($this->folder);
        $module = getenv('SERVERLOCK_MODULE') ?: dirname(__DIR__, 3) . '/target/release/libredis_lock.so';
        $command = [getenv('REDIS_SERVER') ?: 'redis-server', '--port', (string) $this->port, '--bind', '127.0.0.1',
            '--save', '', '--dir', $this->folder, ...($hasModule ? ['--loadmodule', $module] : []), ...$options];
        $log = ['file', "$this->folder/log", 'a'];
        $process = proc_open($command, [['file', '/dev/null', 'r'], $log, $log], $pipes);
        if ($process === false) {
            throw new \RuntimeException('the server cannot be started');
        }
        $this->process = $process;
        $this->pid = proc_get_status($process)['pid'];
        $this->await();
    }

    private static function isFree(int $port): bool
    {
        $probe = @stream_socket_server("tcp://127.0.0.1:$port");
        return $probe !== false && fclose($probe);
    }

    /** Returns once it replies. */
    private function await(): void
    {
        $end = hrtime(true) + 20e9;
        while (!@fsockopen('127.0.0.1', $this->port)) {
            if (hrtime(true) > $end || !proc_get_status($this->process)['running']) {
                throw new \RuntimeException('the server does not answer: ' . file_get_contents("$this->folder/log"));
            }
            usleep(10_000);
        }
    }

    /** The test's own connection. */
    public function connect(): \Redis
    {
        $redis = new \Redis();
        $redis->connect('127.0.0.1', $this->port, 5);
        return $redis;
    }

    /** A connection like an application's. */
    public function client(string $library): \Redis|\Predis\Client
    {
        return $library === 'phpredis'
            ? $this->connect()
            : new \Predis\Client(['host' => '127.0.0.1', 'port' => $this->port]);
    }

    /**
     * The reply to LOCK.INFO.
     *
     * @return array<string, mixed>
     */
    public function info(string $key): array
    {
        $reply = $this->connect()->rawCommand('LOCK.INFO', $key);
        $fields = [];
        for ($at = 0; $at + 1 < count($reply); $at += 2) {
            $fields[$reply[$at]] = $reply[$at + 1];
        }
        return $fields;
    }

    public function pause(): void
    {
        posix_kill($this->pid, SIGSTOP);
    }

    public function resume(): void
    {
        posix_kill($this->pid, SIGCONT);
    }

    public function end(): void
    {
        posix_kill($this->pid, SIGKILL);
        proc_close($this->process);
        array_map('unlink', glob("$this->folder/*") ?: []);
        rmdir($this->folder);
    }
}
