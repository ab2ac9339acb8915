<?php

declare(strict_types=1);

// A process of an application: `work.php lock TTL` works under a lock, `work.php semaphore TTL` with one of two places.

namespace Serverlock\Frameworks\Symfony;

use Serverlock\Frameworks\Work;
use Serverlock\Symfony\SemaphoreStoreFactory;
use Symfony\Component\Semaphore\SemaphoreFactory;

error_reporting(E_ALL & ~E_DEPRECATED);
require __DIR__ . '/../autoload.php';

[, $kind, $ttl] = $argv;
if ($kind === 'lock') {
    $kernel = new Kernel('test', true);
    $kernel->boot();
    $kernel->getContainer()->get(Report::class)->run((float) $ttl);
    exit;
}
$limit = (int) getenv('SEMAPHORE_LIMIT');
$factory = new SemaphoreFactory(SemaphoreStoreFactory::createStore((string) getenv('LOCK_DSN')));
$semaphore = $factory->createSemaphore('reports', $limit, 1, (float) $ttl);
while (!$semaphore->acquire()) {
    Work::redis()->incr('refused');
    usleep(50_000); // a semaphore of Symfony does not wait
}
Work::run('report');
$semaphore->release();
