<?php

declare(strict_types=1);

// Loads the package and its tests from their folders, and the libraries that the tests use from Debian's packages.

// SERVERLOCK_IS_INSTALLED: only the libraries; a test has installed the package elsewhere.
defined('SERVERLOCK_IS_INSTALLED') || spl_autoload_register(static function (string $class): void {
    $folders = ['Serverlock\\Tests\\' => __DIR__ . '/', 'Serverlock\\' => dirname(__DIR__) . '/src/'];
    foreach ($folders as $prefix => $folder) {
        if (str_starts_with($class, $prefix)) {
            $file = $folder . str_replace('\\', '/', substr($class, strlen($prefix))) . '.php';
            if (is_file($file)) {
                require $file;
            }
            return;
        }
    }
});

$libraries = ['Predis/Autoloader.php', 'Symfony/Component/Lock/autoload.php', 'Illuminate/Cache/autoload.php'];
foreach ($libraries as $library) {
    if (stream_resolve_include_path($library) !== false) {
        require_once $library;
    }
}
if (class_exists(Predis\Autoloader::class, false)) {
    Predis\Autoloader::register();
}
