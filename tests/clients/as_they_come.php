<?php

// Waits for a lock with a PHP client and its default time-outs and retries.
//
// as_they_come.php CLIENT PORT KEY OWNER [ID]

declare(strict_types=1);

[, $name, $port, $key, $owner] = $argv;

/** Sends a command. */
function send(string $name, int $port, string ...$command): mixed
{
    static $client = null;
    if ($name === 'phpredis') {
        $client ??= new Redis();
        $client->isConnected() || $client->connect('127.0.0.1', $port);
        return $client->rawCommand(...$command);
    }
    require_once 'Predis/Autoloader.php';
    Predis\Autoloader::register();
    $client ??= new Predis\Client(['port' => $port]);
    return $client->executeRaw($command);
}

try {
    $command = ['LOCK.ACQUIRE', $key, 'EX', '60', 'WAIT', '20000', 'OWNER', $owner];
    $token = send($name, (int) $port, ...$command, ...(isset($argv[5]) ? ['ID', $argv[5]] : []));
    echo 'token ', $token, "\n";
    echo 'released ', send($name, (int) $port, 'LOCK.RELEASE', $key, (string) $token), "\n";
} catch (Exception $error) {
    echo 'error ', get_class($error), ' ', $error->getMessage(), "\n";
}
