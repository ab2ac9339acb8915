<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use PHPUnit\Framework\TestCase;

/**
 * The package's classes refer to one another in one direction: each only to classes above it in LAYERS. A class that
 * needs something from a class below gets it from the class that creates both.
 */
final class ArrowsTest extends TestCase
{
    private const LAYERS = [
        ['End', 'Exception', 'DefaultOwner', 'Outcome', 'Predecessor', 'Leadership', 'Core\Answered', 'Core\Form',
            'Core\GivenUp', 'Core\Clock', 'Core\Time', 'Core\Signals', 'Core\Ticks', 'Core\ConnectionLost',
            'Core\ReplyError', 'Wire\Address', 'Wire\Slot'],
        ['Watch', 'Wire\Connection'],
        ['Hooks', 'LockOptions', 'OnceResult', 'Core\Estimate', 'Core\Failures', 'Core\Owner', 'Core\SystemTime',
            'Core\Watching', 'Wire\Client'],
        ['Core\Request'],
        ['Core\Calls', 'Core\Debts', 'Core\StoredResult', 'Wire\Router', 'Wire\StreamConnection'],
        ['Wire\OverNetwork'],
        ['Core\Commands', 'Core\Portable', 'Core\Replicas', 'Core\Session', 'Core\TickRun', 'Wire\DedicatedClient',
            'Wire\Predis', 'Wire\Subscription'],
        ['Core\Grant', 'Core\Sessions', 'Wire\Phpredis', 'Wire\PredisCluster'],
        ['Core\Hold'],
        ['Core\Module', 'Wire\PhpredisCluster'],
        ['Core\Resources'],
        ['Core\Keeper', 'Core\News', 'Core\ServerClock'],
        ['Core\Attempt'],
        ['Core\Release'],
        ['Core\Keep', 'Held'],
        ['HeldOnce'],
        ['Core\Engine'],
        ['Core\Scope'],
        ['Core\SingleFlight', 'Lock', 'Once'],
        ['Leader'],
        ['Locks'],
        ['OpenTelemetry\Instruments'],
        ['OpenTelemetry\Trace'],
        ['OpenTelemetry\Telemetry'],
        ['Adapter\Refreshable'],
        ['Adapter\LaravelLock', 'Adapter\SymfonyStore'],
        ['Adapter\LaravelLocks', 'Laravel\ServerlockStore'],
        ['Laravel\EventMutex', 'Laravel\SchedulingMutex'],
        ['Laravel\ServerlockServiceProvider'],
        ['Symfony\Dsn', 'Symfony\SemaphoreStore'],
        ['Symfony\LockStoreFactory', 'Symfony\SemaphoreStoreFactory'],
        ['Symfony\StorePass'],
        ['Symfony\ServerlockBundle'],
        ['Testing\Clock'],
        ['Testing\Ask'],
        ['Testing\Grant'],
        ['Testing\Key', 'Testing\Waiter'],
        ['Testing\Memory'],
        ['Testing\Commands'],
        ['Testing\MemoryConnection'],
        ['Testing\MemoryClient'],
        ['Testing\Server'],
    ];

    /** @return array<string, string> each class's source, by its name without the package's namespace */
    private static function sources(): array
    {
        $folder = dirname(__DIR__) . '/src/';
        $sources = [];
        foreach (new \RecursiveIteratorIterator(new \RecursiveDirectoryIterator($folder)) as $file) {
            if ($file->getExtension() === 'php') {
                $name = str_replace('/', '\\', substr($file->getPathname(), strlen($folder), -4));
                $sources[$name] = (string) file_get_contents($file->getPathname());
            }
        }
        return $sources;
    }

    /**
     * The classes that a source names in its code, through `use` or directly in its own namespace.
     *
     * @param list<string> $known names of classes
     * @return list<string>
     */
    private static function uses(string $name, string $source, array $known): array
    {
        $namespace = str_contains($name, '\\') ? substr($name, 0, (int) strrpos($name, '\\')) : '';
        $skipped = [T_OBJECT_OPERATOR, T_NULLSAFE_OBJECT_OPERATOR, T_DOUBLE_COLON, T_FUNCTION, T_CONST, T_NAMESPACE];
        $before = null;
        $found = [];
        foreach (\PhpToken::tokenize($source) as $token) {
            if ($token->isIgnorable()) {
                continue;
            }
            if (!$before?->is($skipped)) {
                if ($token->is([T_NAME_QUALIFIED, T_NAME_FULLY_QUALIFIED])) {
                    $found[] = preg_replace('/^\\\\?Serverlock\\\\/', '', $token->text);
                } elseif ($token->is(T_STRING)) {
                    $found[] = ltrim("$namespace\\$token->text", '\\');
                }
            }
            $before = $token;
        }
        return array_values(array_diff(array_intersect(array_unique($found), $known), [$name]));
    }

    /** Exceptions count as one, because they extend one another. */
    private static function node(string $name): string
    {
        return str_starts_with($name, 'Exception\\') ? 'Exception' : $name;
    }

    public function testEachClassHasItsLayer(): void
    {
        $names = array_unique(array_map(self::node(...), array_keys(self::sources())));
        self::assertEqualsCanonicalizing(array_merge(...self::LAYERS), array_values($names));
    }

    public function testReferencesRunOneWay(): void
    {
        $sources = self::sources();
        $level = array_merge(...array_map(
            static fn (array $layer, int $at): array => array_fill_keys($layer, $at),
            self::LAYERS,
            array_keys(self::LAYERS),
        ));
        [$wrong, $count] = [[], 0];
        foreach ($sources as $name => $source) {
            foreach (self::uses($name, $source, array_keys($sources)) as $used) {
                [$from, $to] = [self::node($name), self::node($used)];
                ++$count;
                if ($from !== $to && $level[$to] >= $level[$from]) {
                    $wrong[] = "$from -> $to";
                }
            }
        }
        self::assertSame([], array_unique($wrong));
        self::assertGreaterThan(100, $count, 'there are too few to be all of them');
    }

    public function testAReferenceIsFoundHoweverItIsWritten(): void
    {
        $known = ['Core\Hold', 'Core\Grant', 'Wire\Slot', 'Held', 'Lock'];
        $source = '<?php namespace Serverlock\Core; use Serverlock\Held; /** Lock */ // Grant
            function f(Hold $hold): \Serverlock\Wire\Slot { return $this->Grant(Other::Grant); }';
        self::assertSame(['Held', 'Core\Hold', 'Wire\Slot'], self::uses('Core\Test', $source, $known));
        self::assertSame(['Lock'], self::uses('Locks', '<?php namespace Serverlock; new Lock();', $known));
    }
}
