<?php

declare(strict_types=1);

namespace Serverlock\Wire;

use Serverlock\Core\Broken;
use Serverlock\Core\Said;

/**
 * The application's client, as locks need it. Keys come with their prefix.
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
     * @throws Said|Broken
     */
    public function call(string $key, array $words, float $timeout): mixed;

    /**
     * Where a line to the server of that key leads.
     *
     * @throws Said|Broken
     */
    public function address(string $key, float $timeout): Address;

    /**
     * The servers that it knows; nobody is asked.
     *
     * @return list<Address>
     */
    public function known(): array;

    /** What it knows about who is the master, or has which keys, may be out of date. */
    public function forget(): void;
}
