<?php

require 'vendor/autoload.php';

$redis = new Redis();
$redis->connect('localhost', 6379);
$locks = new Serverlock\Locks($redis); // one for each Redis client in the application
$locks->lock('report', 10.0, wait: 60.0)->run(function (Serverlock\Held $held): void {
    echo "working, token {$held->token}\n";
    for ($step = 0; $step < 10; $step++) {
        $held->check(); // before each step: renews the lock, throws LockLostException if it is no longer held
        sleep(1);
    }
});
