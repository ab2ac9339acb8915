<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use PHPUnit\Framework\TestCase;
use Serverlock\Core\Form;
use Serverlock\Core\Request;
use Serverlock\Exception\LockBadArgument;

/** What a lock asks for, in words. */
final class RequestTest extends TestCase
{
    public function testWords(): void
    {
        $request = new Request(['a'], 1.5, Form::One, ['LIMIT', 3], 2.0, 'bob', true, true);
        $request->bind('p:');
        $tail = ['WAIT', 2000, 'ID', '7', 'LIMIT', 3, 'OWNER', 'bob', 'SESSION', 'DETAILS'];
        self::assertSame(['LOCK.ACQUIRE', 'p:a', 'PX', 1500, ...$tail], $request->acquire('7', 2.0));
        self::assertSame(['LOCK.EXTEND', 'p:a', 5, 'PX', 1], $request->extend(5, 0.0001));
        $request = new Request(['a', 'b'], 1.0, Form::Many, wait: INF);
        $request->bind('');
        $words = ['LOCK.MACQUIRE', 2, 'a', 'b', 'PX', 1000, 'WAIT', 315_360_000_000, 'ID', '7'];
        self::assertSame($words, $request->acquire('7', INF));
        self::assertSame(['LOCK.MRELEASE', 2, 'a', 'b', 5], $request->release(5));
        self::assertTrue($request->wasHeld(2));
        self::assertFalse($request->wasHeld(1));
    }

    public function testNames(): void
    {
        self::assertSame('"a", "ключ"', Request::shown(['a', 'ключ']));
        self::assertSame('"\000\377 \""', Request::shown(["\0\xff \""]));
        self::assertSame('"' . str_repeat('k', 200) . '"...', Request::shown([str_repeat('k', 300)]));
    }

    /** @return iterable<array{string, array<string, mixed>}> */
    public static function faults(): iterable
    {
        foreach ([0.0, -1.0, NAN, INF, 4e8, 0.0004] as $lease) {
            yield "lease $lease" => ['lease', ['lease' => $lease]];
        }
        yield 'wait' => ['wait', ['wait' => NAN]];
        yield 'negative wait' => ['wait', ['wait' => -0.001]];
        yield 'owner' => ['owner', ['owner' => "line\n"]];
        yield 'number as a key' => ['key', ['keys' => [7]]];
        yield 'n' => ['n is 0', ['kind' => ['LIMIT', 0]]];
        yield 'replicas' => ['replicas', ['replicas' => -1]];
        yield 'replicasWithin' => ['replicasWithin', ['replicasWithin' => 0.0]];
        yield 'atLeast' => ['atLeast', ['atLeast' => -1.0]];
        yield 'maxHold' => ['maxHold', ['maxHold' => 0.0]];
    }

    /**
     * @dataProvider faults
     * @param array<string, mixed> $arguments
     */
    public function testFaultsAreNamed(string $argument, array $arguments): void
    {
        $this->expectException(LockBadArgument::class);
        $this->expectExceptionMessageMatches("/^the lock .*: .*$argument/");
        new Request(...$arguments + ['keys' => ['report'], 'lease' => 30.0]);
    }
}
