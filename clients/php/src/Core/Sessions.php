<?php

declare(strict_types=1);

namespace Serverlock\Core;

use Serverlock\Wire\Client;

/**
 * The connections of session locks. A manager's locks share one, in a cluster one for each server, so the server sees a
 * client that holds one lock and waits for another, and finds deadlocks.
 *
 * @internal
 */
final class Sessions implements \Countable
{
    /** @var array<int, \WeakReference<Session>> */
    private array $sessions = [];

    /**
     * The session of the key's server, or a new one. An attempt that a signal handler makes while another waits gets a
     * new one.
     *
     * @throws ReplyError|ConnectionLost
     */
    public function take(Client $client, string $key, float $timeout): Session
    {
        $address = $client->address($key, $timeout);
        foreach ($this->open() as $session) {
            if ($session->address == $address && $session->take()) {
                return $session;
            }
        }
        $session = new Session($address, $client->open($address, $timeout));
        $this->sessions[] = \WeakReference::create($session);
        return $session;
    }

    /** @return list<Session> */
    public function open(): array
    {
        $open = [];
        foreach ($this->sessions as $at => $reference) {
            $session = $reference->get();
            if ($session === null || $session->connection->isClosed()) {
                unset($this->sessions[$at]);
            } else {
                $open[] = $session;
            }
        }
        return $open;
    }

    public function count(): int
    {
        return count($this->open());
    }
}
