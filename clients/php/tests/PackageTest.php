<?php

declare(strict_types=1);

namespace Serverlock\Tests;

/** The package as users get it: built, and installed into an empty project; the examples of its README and pages. */
final class PackageTest extends ServerTestCase
{
    private const ROOT = __DIR__ . '/../../..';

    private static string $folder;

    public static function setUpBeforeClass(): void
    {
        self::$folder = sys_get_temp_dir() . '/serverlock-package-' . getmypid();
        foreach (['', '/built', '/empty'] as $folder) {
            mkdir(self::$folder . $folder);
        }
        $package = dirname(__DIR__);
        $archive = "composer archive --working-dir=$package --format=tar --file=serverlock --dir=";
        self::command($archive . self::$folder);
        (new \PharData(self::$folder . '/serverlock.tar'))->extractTo(self::$folder . '/built');
        file_put_contents(self::$folder . '/empty/composer.json', json_encode(['repositories' => [
            ['type' => 'path', 'url' => '../built',
                'options' => ['symlink' => false, 'versions' => ['serverlock/serverlock' => '1.0.0']]],
            ['packagist.org' => false],
        ]]));
        self::command('composer require --no-interaction serverlock/serverlock:1.0.0', self::$folder . '/empty');
    }

    public static function tearDownAfterClass(): void
    {
        self::command('rm -rf ' . escapeshellarg(self::$folder));
    }

    /** The output of a command, which must succeed. */
    private static function command(string $command, ?string $folder = null): string
    {
        $environment = ['COMPOSER_ALLOW_SUPERUSER' => '1', 'COMPOSER_HOME' => self::$folder . '/home'] + getenv();
        $files = [['file', '/dev/null', 'r'], ['pipe', 'w'], ['redirect', 1]];
        $process = proc_open($command, $files, $pipes, $folder, $environment);
        self::assertIsResource($process);
        $said = (string) stream_get_contents($pipes[1]);
        self::assertSame(0, proc_close($process), "$command: $said");
        return $said;
    }

    /** The output of a program in the empty project, with Debian's libraries beside it. */
    private static function program(string $source, Server $server): string
    {
        $changes = ['6379' => (string) $server->port, 'sleep(1)' => 'usleep(1)', '< 10;' => '< 2;'];
        $source = str_replace(array_keys($changes), $changes, $source, $count);
        self::assertGreaterThan(0, $count, 'the program names no server');
        $libraries = var_export(__DIR__ . '/autoload.php', true);
        $file = self::$folder . '/empty/program.php';
        // Only Debian's libraries: the package comes from vendor.
        $opening = "<?php define('SERVERLOCK_IS_INSTALLED', true); require $libraries;\n";
        file_put_contents($file, preg_replace('/^<\?php\n/', $opening, $source));
        $php = escapeshellarg(PHP_BINARY) . ' -d error_reporting=8191 ';
        return self::command($php . escapeshellarg($file), self::$folder . '/empty');
    }

    /** @return list<string> the PHP blocks of a page */
    private static function blocks(string $page): array
    {
        preg_match_all('/^```php\n(.*?)^```/ms', (string) file_get_contents(self::ROOT . "/$page"), $found);
        return $found[1];
    }

    public function testTheArchiveHasWhatUsersNeed(): void
    {
        $installed = self::$folder . '/empty/vendor/serverlock/serverlock';
        foreach (['README.md', 'LICENSE', 'composer.json', 'src/lock.lua', 'src/Locks.php'] as $file) {
            self::assertFileExists("$installed/$file");
        }
        self::assertFileDoesNotExist("$installed/tests");
    }

    public function testTheReadmeExamplesRunInAnEmptyProject(): void
    {
        $blocks = self::blocks('clients/php/README.md');
        self::assertCount(5, $blocks); // TestingTest runs the last one
        $server = $this->server();
        self::assertStringStartsWith('working, token 1', self::program($blocks[0], $server));
        self::assertMatchesRegularExpression("/^working, token \d{16}\nran\n$/", self::program($blocks[2], $server));
        self::assertSame("elsewhere\n", self::program($blocks[2], $server));
        $page = self::program($blocks[3], $server);
        self::assertMatchesRegularExpression("/^42 pages, token \d{16}\n$/", $page);
        self::assertSame($page, self::program($blocks[3], $server));
        $server->connect()->rawCommand('LOCK.ACQUIRE', 'nightly', 'PX', 1, 'OWNER', 'host-3');
        self::until('it has expired', fn (): bool => $server->info('nightly')['state'] === 'expired');
        $said = self::program($blocks[1], $server);
        self::assertSame("somebody crashed before us: host-3\nheld to the end: true\n", $said);
        $server->connect()->rawCommand('LOCK.ACQUIRE', 'nightly', 'PX', 60000);
        self::assertSame('the lock "nightly": somebody else has it', self::program($blocks[1], $server));
    }

    public function testTheRepositorysExampleRuns(): void
    {
        $server = $this->server();
        $said = self::program((string) file_get_contents(self::ROOT . '/examples/php/report.php'), $server);
        self::assertMatchesRegularExpression('/^working, token \d{16}\n$/', $said);
        self::assertSame('free', $server->info('report')['state']);
    }

    public function testTheMigrationPagesOneLineChangesRun(): void
    {
        $blocks = self::blocks('docs/MIGRATING.md');
        self::assertCount(2, $blocks);
        foreach (['SymfonyStore' => $blocks[0], 'LaravelLocks' => $blocks[1]] as $adapter => $block) {
            self::assertStringContainsString($adapter, $block);
            $server = $this->server();
            $opening = "<?php\nrequire 'vendor/autoload.php';\n";
            $opening .= "\$redis = new Redis();\n\$redis->connect('localhost', 6379);\n";
            $said = self::program($opening . $block . "echo get_class(\$lock);\n", $server);
            self::assertStringContainsString('Lock', $said);
            $ran = (string) $server->connect()->rawCommand('INFO', 'commandstats');
            self::assertStringContainsString('cmdstat_lock.acquire:', $ran);
        }
    }

    public function testTheScriptIsAnExactCopy(): void
    {
        self::assertFileEquals(self::ROOT . '/portable/lock.lua', dirname(__DIR__) . '/src/lock.lua');
    }
}
