<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use PHPUnit\Framework\TestCase;
use Serverlock\Core\Engine;
use Serverlock\Core\Form;
use Serverlock\Core\Request;
use Serverlock\Exception\LockBadArgumentException;
use Serverlock\Exception\LockLostException;
use Serverlock\Exception\LockMisuseException;
use Serverlock\Held;
use Serverlock\Lock;
use Serverlock\LockOptions;

/** A process that asks again for the lock it holds. */
final class ReentrantTest extends TestCase
{
    /** @param array{}|array{'SHARED'} $kind */
    private static function request(array $kind = [], float $lease = 30.0, bool $isReentrant = true): Request
    {
        return new Request(['report'], $lease, new LockOptions(reentrant: $isReentrant), kind: $kind);
    }

    private static function engine(ScriptedClient $client): Engine
    {
        return new Engine($client, 0.05, true, null, null, mayWarn: false);
    }

    public function testOnlyTheLastReleaseSendsACommand(): void
    {
        $client = new ScriptedClient([7, 1]);
        $engine = self::engine($client);
        $held = $engine->acquire(self::request());
        self::assertSame($held, $engine->acquire(self::request()));
        self::assertTrue($held->release());
        self::assertSame(['LOCK.ACQUIRE'], $client->commands());
        self::assertTrue($held->release());
        self::assertSame(['LOCK.ACQUIRE', 'LOCK.RELEASE'], $client->commands());
        $this->expectException(LockMisuseException::class);
        $held->release();
    }

    public function testTheEndOfTheOutermostRunReleasesTheLock(): void
    {
        $client = new ScriptedClient([7, 1]);
        $lock = new Lock(self::engine($client), self::request());
        $result = $lock->run(static function (Held $outer) use ($lock, $client): string {
            $lock->acquire();
            $inner = $lock->run(static fn (Held $held): Held => $held);
            self::assertSame($outer, $inner);
            self::assertSame(['LOCK.ACQUIRE'], $client->commands());
            return 'done';
        });
        self::assertSame('done', $result);
        self::assertSame(['LOCK.ACQUIRE', 'LOCK.RELEASE'], $client->commands());
    }

    public function testWorkThatFailsReleasesTheLockHoweverOftenItWasAcquired(): void
    {
        $client = new ScriptedClient([7, 1]);
        $lock = new Lock(self::engine($client), self::request());
        try {
            $lock->run(static function () use ($lock): void {
                $lock->acquire();
                throw new \DomainException('the work failed');
            });
            self::fail('no error');
        } catch (\DomainException) {
        }
        self::assertSame(['LOCK.ACQUIRE', 'LOCK.RELEASE'], $client->commands());
    }

    public function testAfterALossAReleaseOrADroppedHeldTheCallerAsksTheServer(): void
    {
        $client = new ScriptedClient([7, 8, 1, 9, 10]);
        $engine = self::engine($client);
        $lost = $engine->acquire(self::request(lease: 0.01));
        usleep(15_000);
        $second = $engine->acquire(self::request());
        self::assertSame([7, 8], [$lost->token, $second->token]);
        $second->release();
        $third = $engine->acquire(self::request());
        self::assertSame(9, $third->token);
        unset($third);
        self::assertSame(10, $engine->acquire(self::request())->token);
        $this->expectException(LockLostException::class);
        $lost->check();
    }

    public function testAnotherKindOfLockOrOneThatIsNotReentrantIsAnError(): void
    {
        $engine = self::engine(new ScriptedClient([7]));
        $held = $engine->acquire(self::request());
        foreach ([self::request(['SHARED']), self::request(isReentrant: false)] as $request) {
            try {
                $engine->acquire($request);
                self::fail('granted');
            } catch (LockMisuseException $error) {
                self::assertStringContainsString('this caller already holds it', $error->getMessage());
            }
        }
        self::assertTrue($held->isHeld());
    }

    public function testARecoveryIsNotReentrant(): void
    {
        $this->expectException(LockBadArgumentException::class);
        new Request(['report'], 30.0, new LockOptions(reentrant: true), Form::Recovery);
    }
}
