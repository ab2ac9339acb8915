<?php

declare(strict_types=1);

namespace Serverlock\Core;

use Serverlock\Wire\Address;
use Serverlock\Wire\Connection;

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
     * The server's session, or a new one. An attempt that signal handlers make while another waits gets a new one.
     *
     * @throws ReplyError|ConnectionLost
     */
    public function take(Address $address, float $timeout): Session
    {
        foreach ($this->open() as $session) {
            if ($session->address == $address && $session->take()) {
                return $session;
            }
        }
        $session = new Session($address, Connection::open($address, $timeout));
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
