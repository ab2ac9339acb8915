<?php

declare(strict_types=1);

// Carries out the orders of clients/suite with this package: `driver.php phpredis` or `driver.php predis`.
//
// A PHP process does one thing at a time. This one hands the orders out to workers, each a PHP process with its own
// client and managers, as a web server hands out requests. An order goes to an idle worker: an order that may wait, to
// a worker that holds no lock; an order for a held lock, to its holder. So most scenarios see one process.

require __DIR__ . '/autoload.php';

use Serverlock\Tests\Driver\Dispatcher;
use Serverlock\Tests\Driver\Libraries;
use Serverlock\Tests\Driver\Worker;

ini_set('display_errors', 'stderr');
set_error_handler(static function (int $level, string $text, string $file, int $line): bool {
    if (error_reporting() & $level) {
        throw new ErrorException($text, 0, $level, $file, $line);
    }
    return true;
});

$client = $argv[1] ?? '';
if (!in_array($client, Libraries::NAMES, true)) {
    fwrite(STDERR, 'the client must be one of ' . implode(', ', Libraries::NAMES) . "\n");
    exit(2);
}
if (($argv[2] ?? '') === 'worker') {
    (new Worker($client))->play();
} else {
    (new Dispatcher($client, [PHP_BINARY, __FILE__, $client, 'worker']))->play();
}
