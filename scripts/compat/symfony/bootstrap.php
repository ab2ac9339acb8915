<?php

declare(strict_types=1);

// Loads the package, the libraries, and symfony's abstract tests from the folder that TESTS names.

require dirname(__DIR__, 3) . '/clients/php/tests/autoload.php';

spl_autoload_register(static function (string $class): void {
    $folders = ['Symfony\\Component\\Lock\\Tests\\' => getenv('TESTS') . '/', 'Serverlock\\Compat\\' => __DIR__ . '/'];
    foreach ($folders as $prefix => $folder) {
        if (str_starts_with($class, $prefix)) {
            require $folder . str_replace('\\', '/', substr($class, strlen($prefix))) . '.php';
        }
    }
});
