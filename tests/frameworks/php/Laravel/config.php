<?php

declare(strict_types=1);

// The configuration of the application, in one file; LaravelTest writes it to its config folder in parts.

use Illuminate\Bus\BusServiceProvider;
use Illuminate\Cache\CacheServiceProvider;
use Illuminate\Database\DatabaseServiceProvider;
use Illuminate\Filesystem\FilesystemServiceProvider;
use Illuminate\Foundation\Providers\ConsoleSupportServiceProvider;
use Illuminate\Queue\QueueServiceProvider;
use Illuminate\Redis\RedisServiceProvider;
use Monolog\Handler\StreamHandler;

$server = ['host' => '127.0.0.1', 'port' => (int) getenv('SERVERLOCK_PORT'), 'read_write_timeout' => -1];

return [
    'app' => [
        'name' => 'reports',
        'env' => 'testing',
        'debug' => true,
        'timezone' => 'UTC',
        'locale' => 'en',
        'providers' => [
            BusServiceProvider::class, CacheServiceProvider::class, ConsoleSupportServiceProvider::class,
            DatabaseServiceProvider::class, FilesystemServiceProvider::class, QueueServiceProvider::class,
            RedisServiceProvider::class,
        ],
        'aliases' => [],
    ],
    'cache' => [
        'default' => getenv('SERVERLOCK_STORE'),
        'prefix' => 'reports',
        'stores' => [
            'array' => ['driver' => 'array'],
            'serverlock' => ['driver' => 'serverlock', 'connection' => 'default'],
            'sessions' => ['driver' => 'serverlock', 'connection' => 'default', 'sessions' => true],
        ],
    ],
    'database' => [
        'default' => 'none',
        'connections' => ['none' => ['driver' => 'sqlite']],
        'migrations' => 'migrations',
        'redis' => ['client' => getenv('SERVERLOCK_CLIENT'), 'options' => ['prefix' => 'app:'], 'default' => $server],
    ],
    'queue' => [
        'default' => 'redis',
        'connections' => ['redis' => [
            'driver' => 'redis', 'connection' => 'default', 'queue' => 'default', 'retry_after' => 5,
            'block_for' => null,
        ]],
        'failed' => ['driver' => 'null'],
    ],
    'logging' => ['default' => 'stderr', 'channels' => ['stderr' => [
        'driver' => 'monolog', 'handler' => StreamHandler::class, 'with' => ['stream' => 'php://stderr'],
    ]]],
];
