<?php

declare(strict_types=1);

// An application's `artisan`. SERVERLOCK_APP is its folder, SERVERLOCK_STORE its cache store, SERVERLOCK_PORT the
// server's port, SERVERLOCK_NOW the time for its scheduler.

namespace Serverlock\Frameworks\Laravel;

use Illuminate\Contracts\Console\Kernel as KernelContract;
use Illuminate\Contracts\Debug\ExceptionHandler;
use Illuminate\Foundation\Application;
use Illuminate\Foundation\Exceptions\Handler;
use Illuminate\Support\Carbon;
use Symfony\Component\Console\Input\ArgvInput;
use Symfony\Component\Console\Output\ConsoleOutput;

error_reporting(E_ALL & ~E_DEPRECATED);
require __DIR__ . '/../autoload.php';

$app = new Application(getenv('SERVERLOCK_APP'));
$app->singleton(KernelContract::class, Kernel::class);
$app->singleton(ExceptionHandler::class, Handler::class);
if (getenv('SERVERLOCK_NOW') !== false) {
    Carbon::setTestNow(getenv('SERVERLOCK_NOW'));
}
$kernel = $app->make(KernelContract::class);
$status = $kernel->handle($input = new ArgvInput(), new ConsoleOutput());
$kernel->terminate($input, $status);
exit($status);
