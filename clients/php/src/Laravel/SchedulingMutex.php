<?php

declare(strict_types=1);

namespace Serverlock\Laravel;

use DateTimeInterface;
use Illuminate\Console\Scheduling\CacheSchedulingMutex;
use Illuminate\Console\Scheduling\Event;

/**
 * onOneServer() of Laravel's scheduler, with a lock if the scheduler's cache store is a ServerlockStore.
 *
 * The lock of a minute is kept for an hour, so that a server whose clock is behind finds it.
 */
final class SchedulingMutex extends CacheSchedulingMutex
{
    private const KEPT = 3600;

    public function create(Event $event, DateTimeInterface $time): bool
    {
        $store = $this->serverlock();
        return $store?->lock(self::name($event, $time), self::KEPT)->acquire() ?? (bool) parent::create($event, $time);
    }

    public function exists(Event $event, DateTimeInterface $time): bool
    {
        return $this->serverlock()?->isLocked(self::name($event, $time)) ?? parent::exists($event, $time);
    }

    private static function name(Event $event, DateTimeInterface $time): string
    {
        return $event->mutexName() . $time->format('Hi');
    }

    private function serverlock(): ?ServerlockStore
    {
        $store = $this->cache->store($this->store)->getStore();
        return $store instanceof ServerlockStore ? $store : null;
    }
}
