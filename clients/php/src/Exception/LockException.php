<?php

declare(strict_types=1);

namespace Serverlock\Exception;

/**
 * Any lock error. getPrevious() is the library's or the server's error, if there was one.
 *
 * It can be serialized. A copy has the text of the previous error, but no trace, because PHP may not be able to
 * serialize its arguments.
 */
abstract class LockException extends \RuntimeException
{
    /** @var string a class's kind, the value of $kind */
    public const KIND = '';

    /** The stable name of the kind. getCode() stays a number, because callers pass it on to their own exceptions. */
    public readonly string $kind;

    /** @param string $key the lock's key, or its keys, quoted */
    final public function __construct(public readonly string $key, string $reason, ?\Throwable $previous = null)
    {
        parent::__construct(($key === '' ? '' : "the lock $key: ") . $reason, 0, $previous);
        $this->kind = static::KIND;
    }

    /** @return array{string, string, string, int, string|null} */
    public function __serialize(): array
    {
        $previous = $this->getPrevious();
        $text = $previous === null ? null : $previous::class . ': ' . $previous->getMessage();
        return [$this->key, $this->message, $this->file, $this->line, $text];
    }

    /** @param array{string, string, string, int, string|null} $data */
    public function __unserialize(array $data): void
    {
        [$this->key, $text, $this->file, $this->line, $previous] = $data;
        parent::__construct($text, 0, $previous === null ? null : new \RuntimeException($previous));
        $this->kind = static::KIND;
    }
}
