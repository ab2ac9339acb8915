<?php

declare(strict_types=1);

// Loads the package, its tests' helpers, the tests and applications in this folder, and Debian's frameworks.

require __DIR__ . '/../../../clients/php/tests/autoload.php';

spl_autoload_register(static function (string $class): void {
    if (str_starts_with($class, 'Serverlock\\Frameworks\\')) {
        $file = __DIR__ . '/' . str_replace('\\', '/', substr($class, strlen('Serverlock\\Frameworks\\'))) . '.php';
        if (is_file($file)) {
            require $file;
        }
    }
});

foreach (['Illuminate', 'Symfony/Bundle/FrameworkBundle', 'Symfony/Component/Semaphore'] as $library) {
    if (stream_resolve_include_path("$library/autoload.php") !== false) {
        require_once "$library/autoload.php";
    }
}
