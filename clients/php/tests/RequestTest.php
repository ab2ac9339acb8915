<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use PHPUnit\Framework\TestCase;
use Serverlock\Core\Form;
use Serverlock\Core\Owner;
use Serverlock\Core\Request;
use Serverlock\Exception\LockBadArgumentException;
use Serverlock\LockOptions;

/** The words of a lock's request. */
final class RequestTest extends TestCase
{
    public function testWords(): void
    {
        $request = new Request(['a'], 1.5, new LockOptions(2.0, 'bob', true, true), Form::One, ['LIMIT', 3]);
        $request->bind('p:');
        $tail = ['WAIT', 2000, 'ID', '7', 'LIMIT', 3, 'OWNER', 'bob', 'SESSION', 'DETAILS'];
        self::assertSame(['LOCK.ACQUIRE', 'p:a', 'PX', 1500, ...$tail], $request->acquire('7', 2.0));
        self::assertSame(['LOCK.EXTEND', 'p:a', 5, 'PX', 1], $request->extend(5, 0.0001));
        $request = new Request(['a', 'b'], 1.0, new LockOptions(wait: INF, owner: null), Form::Many);
        $request->bind('');
        $words = ['LOCK.MACQUIRE', 2, 'a', 'b', 'PX', 1000, 'WAIT', 315_360_000_000, 'ID', '7'];
        self::assertSame($words, $request->acquire('7', INF));
        self::assertSame(['LOCK.MRELEASE', 2, 'a', 'b', 5], $request->release(5));
        self::assertTrue($request->wasHeld(2));
        self::assertFalse($request->wasHeld(1));
    }

    public function testALockWithoutAnOwnerNamesItsHostAndProcess(): void
    {
        $request = new Request(['a'], 1.0);
        $request->bind('');
        $owner = gethostname() . ':' . getmypid();
        self::assertSame(['LOCK.ACQUIRE', 'a', 'PX', 1000, 'ID', '7', 'OWNER', $owner], $request->acquire('7'));
        $child = pcntl_fork();
        if ($child === 0) { // the same request in another process
            $words = $request->acquire('7');
            posix_kill((int) getmypid(), end($words) === gethostname() . ':' . getmypid() ? SIGKILL : SIGTERM);
        }
        pcntl_waitpid($child, $status);
        self::assertSame(SIGKILL, pcntl_wtermsig($status), 'the child names itself');
    }

    public function testAHostsNameIsMadeVisibleAndCut(): void
    {
        self::assertSame('web-1:42', Owner::of('web-1', 42));
        self::assertSame('w?b?1:42', Owner::of("w\u{e9}b 1", 42));
        self::assertSame('??:42', Owner::of("\xff\n", 42));
        $label = Owner::of(str_repeat('h', 300), 12345);
        self::assertSame([128, 'h:12345'], [strlen($label), substr($label, -7)]);
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
        yield 'wait' => ['wait', ['options' => new LockOptions(wait: NAN)]];
        yield 'negative wait' => ['wait', ['options' => new LockOptions(wait: -0.001)]];
        yield 'owner' => ['owner', ['options' => new LockOptions(owner: "line\n")]];
        yield 'number as a key' => ['key', ['keys' => [7]]];
        yield 'n' => ['n is 0', ['kind' => ['LIMIT', 0]]];
        yield 'replicas' => ['replicas', ['options' => new LockOptions(replicas: -1)]];
        yield 'replicasWithin' => ['replicasWithin', ['options' => new LockOptions(replicasWithin: 0.0)]];
        yield 'atLeast' => ['atLeast', ['options' => new LockOptions(atLeast: -1.0)]];
        yield 'a wait to recover' => ['wait', ['options' => new LockOptions(wait: 1.0), 'form' => Form::Recovery]];
        $details = new LockOptions(details: true);
        yield 'details of several keys' => ['details', ['options' => $details, 'form' => Form::Many]];
        yield 'maxHold' => ['maxHold', ['options' => new LockOptions(maxHold: 0.0)]];
    }

    /**
     * @dataProvider faults
     * @param array<string, mixed> $arguments
     */
    public function testBadArgumentsAreNamed(string $argument, array $arguments): void
    {
        $this->expectException(LockBadArgumentException::class);
        $this->expectExceptionMessageMatches("/^the lock .*: .*$argument/");
        new Request(...$arguments + ['keys' => ['report'], 'lease' => 30.0]);
    }

    public function testOptionsAreOneObjectOrTheArgumentsOfItsConstructor(): void
    {
        $options = new LockOptions(wait: 60.0, maxHold: 90.0);
        self::assertSame($options, LockOptions::of([$options]));
        self::assertEquals($options, LockOptions::of(['wait' => 60, 'maxHold' => 90]));
        self::assertEquals(new LockOptions(60.0, 'bob'), LockOptions::of([60.0, 'bob']));
        self::assertEquals(new LockOptions(), LockOptions::of([]));
        $this->expectExceptionMessage('Unknown named parameter $wiat');
        LockOptions::of(['wiat' => 60.0]);
    }

    public function testAQueueIsInTheSlotOfItsKeyAndBelongsToNoOther(): void
    {
        self::assertSame('report:queue:{report}', Request::queueOf('report'));
        self::assertSame("\xff\0\n:queue:{\xff\0\n}", Request::queueOf("\xff\0\n"));
        self::assertSame('{42}:report:queue', Request::queueOf('{42}:report'));
        self::assertSame("a\n{b}c}:queue", Request::queueOf("a\n{b}c}"));
        foreach (['{', '}', 'a{}b', '{}{a}', 'a}b', 'a{b'] as $key) {
            self::assertNull(Request::queueOf($key), $key);
        }
        $request = new Request(['x'], 30.0);
        $request->bind('{app}:');
        self::assertSame(['{app}:x', '{app}:x:queue'], $request->keysAndQueues());
        $request->bind('app}:');
        self::assertNull($request->keysAndQueues());
    }
}
