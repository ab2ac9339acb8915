<?php

declare(strict_types=1);

namespace Serverlock\Frameworks\Symfony;

use Serverlock\Frameworks\Work;
use Symfony\Component\Lock\LockFactory;

/** A service that works under the lock of Symfony's configuration. */
final class Report
{
    public function __construct(private readonly LockFactory $locks)
    {
    }

    public function run(float $ttl): void
    {
        $lock = $this->locks->createLock('report', $ttl);
        $lock->acquire(true);
        Work::run('report');
        $lock->release();
    }
}
