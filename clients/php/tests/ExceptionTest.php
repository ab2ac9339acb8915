<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use PHPUnit\Framework\TestCase;
use Serverlock\Exception\LockException;

/** What users do with errors besides catching them. */
final class ExceptionTest extends TestCase
{
    /** Old name => kind. The new name has the suffix Exception. */
    private const KINDS = [
        'LockRefused' => 'refused',
        'LockTimeout' => 'timeout',
        'LockLost' => 'lost',
        'LockDeadlock' => 'deadlock',
        'LockUnavailable' => 'unavailable',
        'LockDenied' => 'denied',
        'LockNoServer' => 'no_server',
        'LockBadArgument' => 'argument',
        'LockMisuse' => 'misuse',
    ];

    public function testAllAreSerializedWhateverIsInTheirTraces(): void
    {
        foreach (self::KINDS as $name => $kind) {
            $type = "Serverlock\\Exception\\{$name}Exception";
            $make = static fn (\Closure $inTheTrace): LockException =>
                new $type('"report"', 'why', new \RedisException('went away'));
            $error = $make(static fn (): int => 1);
            $read = unserialize(serialize($error));
            self::assertInstanceOf($type, $read);
            self::assertSame(
                [$kind, '"report"', $error->getMessage(), $error->getLine(), 0],
                [$read->kind, $read->key, $read->getMessage(), $read->getLine(), $read->getCode()],
            );
            self::assertSame('RedisException: went away', $read->getPrevious()?->getMessage());
        }
        $files = glob(dirname(__DIR__) . '/src/Exception/*Exception.php') ?: [];
        self::assertCount(count(self::KINDS) + 1, $files, 'no kind is forgotten here');
    }

    public function testOldNamesAreTheSameClassesWhicheverNameIsLoadedFirst(): void
    {
        foreach (array_keys(self::KINDS) as $name) {
            foreach ([[$name, "{$name}Exception"], ["{$name}Exception", $name]] as [$first, $second]) {
                $program = "require \$argv[1]; try { throw new Serverlock\\Exception\\$first('', 'caught'); }"
                    . " catch (Serverlock\\Exception\\$second \$error) { echo \$error->getMessage(); }";
                $command = [PHP_BINARY, '-r', $program, __DIR__ . '/autoload.php'];
                $process = proc_open($command, [1 => ['pipe', 'w'], 2 => ['redirect', 1]], $pipes);
                self::assertIsResource($process);
                self::assertSame('caught', stream_get_contents($pipes[1]), "$first as $second");
                proc_close($process);
            }
        }
    }
}
