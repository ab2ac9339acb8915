<?php

declare(strict_types=1);

namespace Serverlock\Laravel;

use Illuminate\Console\Scheduling\CacheEventMutex;
use Illuminate\Console\Scheduling\Event;
use Serverlock\Adapter\LaravelLock;

/**
 * withoutOverlapping() of Laravel's scheduler, with a lock if the scheduler's cache store is a ServerlockStore.
 *
 * The end of an event releases the lock that the event got. If that lock has expired and another process has it,
 * it keeps it; Laravel's own mutex would delete it.
 */
final class EventMutex extends CacheEventMutex
{
    /** @var array<string, LaravelLock> those that this process got; kept, because a dropped session lock ends */
    private array $locks = [];

    public function create(Event $event): bool
    {
        $store = $this->serverlock();
        if ($store === null) {
            return (bool) parent::create($event);
        }
        $name = $event->mutexName();
        $seconds = $event->expiresAt * 60;
        // An event in the background outlives this process.
        $lock = $event->runInBackground ? $store->lock($name, $seconds) : $store->processLock($name, $seconds);
        if (!$lock->acquire()) {
            return false;
        }
        $this->locks[$name] = $lock;
        return true;
    }

    public function exists(Event $event): bool
    {
        return $this->serverlock()?->isLocked($event->mutexName()) ?? parent::exists($event);
    }

    public function forget(Event $event): void
    {
        $store = $this->serverlock();
        if ($store === null) {
            parent::forget($event);
            return;
        }
        $name = $event->mutexName();
        // Laravel calls this at the end of the event and at the end of the process.
        $lock = $this->locks[$name] ?? null;
        $lock === null ? $store->lock($name)->forceRelease() : $lock->release();
    }

    private function serverlock(): ?ServerlockStore
    {
        $store = $this->cache->store($this->store)->getStore();
        return $store instanceof ServerlockStore ? $store : null;
    }
}
