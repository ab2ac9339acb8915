<?php

declare(strict_types=1);

namespace Serverlock\Wire;

use Serverlock\Core\ConnectionLost;
use Serverlock\Core\ReplyError;

/**
 * The application's client, as locks need it. Callers add the prefix to keys.
 *
 * @internal
 */
interface Client
{
    public function isCluster(): bool;

    /** What the library puts before each key. */
    public function prefix(): string;

    /**
     * One exchange with the server of that key, over the application's connection. When no reply comes, that connection
     * is closed. nil is null.
     *
     * @param list<string|int|float> $words
     * @throws ReplyError|ConnectionLost
     */
    public function call(string $key, array $words, float $timeout): mixed;

    /**
     * The address of the server of that key, for a dedicated connection.
     *
     * @throws ReplyError|ConnectionLost
     */
    public function address(string $key, float $timeout): Address;

    /**
     * The servers that it knows; nothing is sent.
     *
     * @return list<Address>
     */
    public function known(): array;

    /** Forgets which server is the master, or has which keys: that may be out of date. */
    public function forget(): void;
}
