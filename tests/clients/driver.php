<?php

// Plays what tests/integration/languages asks for, with the lock of examples/php.
//
// A line of JSON in, a line of JSON out; see tests/integration/languages/driver.rs. PHP has no threads: the work calls
// check() while it waits for orders, and an order to cancel is seen between two pieces of the wait.

declare(strict_types=1);

require __DIR__ . '/../../examples/php/RedisLock.php';

const KINDS = [LockRefused::class => 'refused', LockLost::class => 'lost', LockUnsupported::class => 'unsupported',
    LockReply::class => 'reply', RedisException::class => 'connection', DomainException::class => 'work'];

function say(array $line): void
{
    fwrite(STDOUT, json_encode($line) . "\n");
}

/** The next order, if one comes within so many seconds; null: however long it takes. */
function order(?float $within): ?array
{
    $streams = [STDIN];
    $none = [];
    if ($within !== null && !stream_select($streams, $none, $none, 0, (int) ($within * 1e6))) {
        return null;
    }
    $line = fgets(STDIN);
    return $line === false ? exit(0) : json_decode($line, true, flags: JSON_THROW_ON_ERROR);
}

function connect(int $port, float $timeout, string $prefix = ''): Redis
{
    $redis = new Redis();
    $redis->connect('127.0.0.1', $port, $timeout);
    $redis->setOption(Redis::OPT_PREFIX, $prefix);
    return $redis;
}

function hold(array $wanted): void
{
    $warned = '';
    set_error_handler(function (int $level, string $text) use (&$warned) {
        $warned .= $text;
        return $level === E_USER_WARNING;
    });
    static $locks = []; // asked for the same again, it uses the same again
    $lock = $locks[json_encode($wanted)] ??= new RedisLock(
        fn (float $timeout) => connect($wanted['port'], $timeout, $wanted['prefix']),
        $wanted['key'],
        lease: $wanted['lease_ms'] / 1000,
        wait: $wanted['wait_ms'] / 1000,
        timeout: $wanted['timeout_ms'] / 1000,
        owner: $wanted['owner'],
        session: $wanted['session'],
        fallback: $wanted['fallback'],
        keepWaiting: fn () => order(0) === null,
    );
    $lock->with(function (RedisLock $lock) use (&$warned) {
        say(['event' => 'held', 'token' => $lock->token(), 'warned' => $warned]);
        while (($order = order(0.05)) === null) {
            try {
                $lock->check();
            } catch (LockLost $lost) {
                say(['event' => 'stopped', 'left_ms' => $lock->left() * 1000]);
                throw $lost;
            }
        }
        if ($order['do'] === 'fail') {
            throw new DomainException('the work failed');
        }
    });
    say(['event' => 'left']);
}

$clients = [];
while ($order = order(null)) {
    try {
        if ($order['do'] === 'hold') {
            hold($order);
        } else {
            $client = $clients[$order['port']] ??= connect($order['port'], 5);
            say(['event' => 'pong', 'reply' => $client->echo('hello')]);
        }
    } catch (Throwable $error) {
        $kind = KINDS[$error::class] ?? 'unknown';
        say(['event' => 'error', 'kind' => $kind, 'name' => $error::class, 'text' => $error->getMessage()]);
    }
}
