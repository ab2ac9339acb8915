<?php

declare(strict_types=1);

namespace Serverlock\Wire;

use Serverlock\Core\ConnectionLost;
use Serverlock\Core\Clock;
use Serverlock\Core\Failures;
use Serverlock\Core\ReplyError;

/**
 * A connection over a PHP stream, in RESP2.
 *
 * The libraries hide their sockets. This class notices the end of a session without a round trip, each call has its own
 * time-out, and a signal handler's exception ends a wait at once. A call that ends early closes the connection, so that
 * a late reply is never read as the reply to another call. A session has other locks, so it sends and receives in two
 * steps: then an exception leaves the connection open, and the reply is read later. A child process must not touch its
 * parent's connection.
 *
 * @internal
 */
final class StreamConnection implements Connection
{
    private string $buffer = '';
    private bool $isOpen = true;
    /** A command has been sent, and its reply has not been read. */
    private bool $isPending = false;

    /** @param resource $stream */
    private function __construct(private $stream)
    {
    }

    /** @throws ConnectionLost|ReplyError */
    public static function open(Address $address, float $timeout): self
    {
        $end = Clock::now() + $timeout;
        $context = stream_context_create(['socket' => ['tcp_nodelay' => true], 'ssl' => $address->tls ?? []]);
        error_clear_last();
        $stream = @stream_socket_client($address->uri, $code, $text, $timeout, STREAM_CLIENT_CONNECT, $context);
        if ($stream === false) {
            throw new ConnectionLost("$address->uri: " . ($text ?: error_get_last()['message'] ?? "error $code"));
        }
        stream_set_blocking($stream, false);
        $connection = new self($stream);
        try {
            if ($address->auth) {
                $connection->call(['AUTH', ...$address->auth], max(0.001, $end - Clock::now()));
            }
            if ($address->database !== 0) {
                $connection->call(['SELECT', $address->database], max(0.001, $end - Clock::now()));
            }
        } catch (ReplyError $error) { // the user or the database is wrong
            throw new ConnectionLost($error->getMessage(), $error, isFinal: $error->word !== 'LOADING');
        }
        return $connection;
    }

    public function call(array $words, float $timeout, ?\Closure $checkpoint = null): mixed
    {
        $end = Clock::now() + $timeout;
        $this->send($words, $timeout);
        try {
            return $this->reply($end - Clock::now(), $checkpoint);
        } finally {
            $this->isPending && $this->close();
        }
    }

    public function send(array $words, float $timeout): void
    {
        if (!$this->isOpen) {
            throw new ConnectionLost('the connection is closed');
        }
        $request = '*' . count($words) . "\r\n";
        foreach ($words as $word) {
            $word = (string) $word;
            $request .= '$' . strlen($word) . "\r\n$word\r\n";
        }
        $this->isPending = true;
        try {
            $this->write($request, Clock::now() + $timeout);
        } catch (\Throwable $error) {
            $this->close();
            throw $error;
        }
    }

    public function reply(float $timeout, ?\Closure $checkpoint = null): mixed
    {
        $end = Clock::now() + $timeout;
        if ($this->isOpen && $this->buffer === '') { // the reply cannot have arrived yet
            $this->await($end) || $checkpoint === null || $checkpoint();
        }
        if (!$this->next($end, $checkpoint, $reply)) {
            $this->close();
            throw new ConnectionLost('no reply in time');
        }
        $this->isPending = false;
        return $reply instanceof \Throwable ? throw $reply : $reply;
    }

    public function isPending(): bool
    {
        return $this->isPending;
    }

    public function settle(float $timeout): bool
    {
        try {
            if ($this->isPending && $this->next(Clock::now() + $timeout, null, $reply)) {
                $this->isPending = false;
            }
        } catch (ConnectionLost) {
            return false;
        }
        return $this->isOpen && !$this->isPending;
    }

    /**
     * Returns what the server sends on its own; null if nothing came in time. Unlike a call, it can end early.
     *
     * @param null|\Closure(): void $checkpoint called if a signal arrives during the wait; its exception ends the wait
     * @throws ConnectionLost
     */
    public function receive(float $timeout, ?\Closure $checkpoint = null): mixed
    {
        return $this->next(Clock::now() + $timeout, $checkpoint, $value) ? $value : null;
    }

    public function isOpen(): bool
    {
        if (!$this->isOpen) {
            return false;
        }
        $chunk = @fread($this->stream, 65536);
        if ($this->isPending && $chunk !== false && $chunk !== '') {
            $this->buffer .= $chunk;
        } elseif ($chunk === false || $chunk !== '' || stream_get_meta_data($this->stream)['eof']) {
            $this->close(); // no call is pending: this is an error, or the end
        }
        return $this->isOpen;
    }

    public function isClosed(): bool
    {
        return !$this->isOpen;
    }

    public function close(): void
    {
        if ($this->isOpen) {
            $this->isOpen = false;
            fclose($this->stream);
        }
    }

    private function write(string $bytes, float $end): void
    {
        while (true) {
            $written = @fwrite($this->stream, $bytes);
            if ($written === false) {
                throw new ConnectionLost('the connection broke');
            }
            if ($written === strlen($bytes)) {
                return;
            }
            if (Clock::now() >= $end) {
                throw new ConnectionLost('no reply in time');
            }
            $bytes = substr($bytes, $written);
            $this->await($end, isToWrite: true);
        }
    }

    /**
     * Reads the next reply or message into $value. Returns false if none came in time.
     *
     * @param null|\Closure(): void $checkpoint called if a signal arrives during the wait; it may close the connection
     * @throws ConnectionLost
     */
    private function next(float $end, ?\Closure $checkpoint, mixed &$value): bool
    {
        while ($this->isOpen) {
            $at = 0;
            if ($this->buffer !== '' && $this->parse($at, $value)) {
                $this->buffer = substr($this->buffer, $at);
                return true;
            }
            $chunk = @fread($this->stream, 65536);
            if ($chunk !== false && $chunk !== '') { // again before waiting: TLS may have read more than it returned
                $this->buffer .= $chunk;
            } elseif (stream_get_meta_data($this->stream)['eof']) {
                $this->close();
                throw new ConnectionLost('the server closed the connection');
            } elseif (Clock::now() >= $end) {
                return false;
            } elseif (!$this->await($end) && $checkpoint !== null) {
                $checkpoint();
            }
        }
        throw new ConnectionLost('the connection is closed');
    }

    /** Waits until something can be read or written. Returns false if the time is up, or a signal has arrived. */
    private function await(float $end, bool $isToWrite = false): bool
    {
        $left = max(0.0, $end - Clock::now());
        $read = $isToWrite ? null : [$this->stream];
        $write = $isToWrite ? [$this->stream] : null;
        $except = null;
        return (bool) @stream_select($read, $write, $except, (int) $left, (int) (fmod($left, 1) * 1e6) + 1);
    }

    /** Parses one reply at that position in the buffer; false if it is not complete yet. An error is a value here. */
    private function parse(int &$at, mixed &$value): bool
    {
        $end = strpos($this->buffer, "\r\n", $at);
        if ($end === false) {
            return false;
        }
        [$kind, $text] = [$this->buffer[$at], substr($this->buffer, $at + 1, $end - $at - 1)];
        $at = $end + 2;
        switch ($kind) {
            case ':':
                $value = (int) $text;
                return true;
            case '+':
                $value = $text;
                return true;
            case '-':
                $error = Failures::read($text);
                $value = $error instanceof ConnectionLost && !$error->isFinal ? new ReplyError($text) : $error;
                return true;
            case '$':
                $size = (int) $text;
                $value = $size < 0 ? null : substr($this->buffer, $at, $size);
                $at += $size < 0 ? 0 : $size + 2;
                return strlen($this->buffer) >= $at;
            case '*':
                $value = (int) $text < 0 ? null : [];
                for ($left = (int) $text; $left > 0; --$left) {
                    if (!$this->parse($at, $item)) {
                        return false;
                    }
                    $value[] = $item;
                }
                return true;
            default:
                $this->close();
                throw new ConnectionLost('this is not RESP: ' . substr($text, 0, 40));
        }
    }
}
