<?php

declare(strict_types=1);

namespace Serverlock\Wire;

use Serverlock\Core\ConnectionLost;
use Serverlock\Core\ReplyError;
use Serverlock\Core\Time;

/**
 * The application's client, reduced to what locks need. Callers add the prefix to keys.
 *
 * @internal
 */
interface Client
{
    public function isCluster(): bool;

    /** The prefix that the library puts before each key. */
    public function prefix(): string;

    /**
     * One exchange with the key's server, over the application's connection, which is closed if no reply comes. nil is
     * returned as null.
     *
     * @param list<string|int|float> $words
     * @throws ReplyError|ConnectionLost
     */
    public function call(string $key, array $words, float $timeout): mixed;

    /**
     * The address of the key's server, for a dedicated connection.
     *
     * @throws ReplyError|ConnectionLost
     */
    public function address(string $key, float $timeout): Address;

    /**
     * Opens a dedicated connection to that server.
     *
     * @throws ConnectionLost|ReplyError
     */
    public function open(Address $address, float $timeout): Connection;

    /** The clock by which leases and waits are measured. */
    public function clock(): Time;

    /**
     * The servers that the client knows. Sends nothing.
     *
     * @return list<Address>
     */
    public function known(): array;

    /** Forgets which server is the master, or which server has which keys, because that may be out of date. */
    public function forget(): void;
}
