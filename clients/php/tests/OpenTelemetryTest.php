<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use OpenTelemetry\API\Globals;
use PHPUnit\Framework\TestCase;
use Serverlock\Exception\LockRefusedException;
use Serverlock\Exception\LockTimeoutException;
use Serverlock\Exception\LockUnavailableException;
use Serverlock\Held;
use Serverlock\Hooks;
use Serverlock\Locks;
use Serverlock\OpenTelemetry\Telemetry;
use Serverlock\Testing\Server;
use Serverlock\Watch;

require_once __DIR__ . '/opentelemetry.php';

/** Spans and metrics, as doubles of OpenTelemetry's interfaces get them. */
final class OpenTelemetryTest extends TestCase
{
    private Server $server;
    private Recorder $recorder;
    private Locks $locks;
    private Locks $others;

    protected function setUp(): void
    {
        $this->server = new Server();
        $this->recorder = new Recorder();
        $this->locks = $this->server->locks($this->hooks());
        $this->others = $this->server->locks();
    }

    private function hooks(bool $keyAttribute = false): Hooks
    {
        return Telemetry::hooks($this->recorder, $this->recorder, $keyAttribute);
    }

    /**
     * @param class-string<\Throwable> $type
     * @param \Closure(): mixed $act
     */
    private static function fails(string $type, \Closure $act): void
    {
        try {
            $act();
        } catch (\Throwable $error) {
            self::assertInstanceOf($type, $error, (string) $error);
            return;
        }
        self::fail("no $type");
    }

    /**
     * @param array<string, mixed> $more
     * @return array<string, mixed>
     */
    private static function waitOf(string $outcome, array $more = []): array
    {
        return [
            'db.system.name' => 'redis', 'serverlock.key' => 'report', 'db.operation.name' => 'LOCK.ACQUIRE',
            'serverlock.outcome' => $outcome,
        ] + $more;
    }

    public function testALockThatIsAcquiredAndReleased(): void
    {
        $held = $this->locks->lock('report', 30.0)->acquire();
        self::assertSame([1, 1], $this->recorder->points['serverlock.held {lock}']);
        $this->server->clock->advance(7.0);
        self::assertTrue($held->release());
        [$wait, $hold] = $this->recorder->ended;
        self::assertSame(['lock.wait', 1, null], [$wait->name, $wait->kind, $wait->status]);
        self::assertEquals(self::waitOf('granted'), $wait->attributes);
        self::assertSame(['lock.hold', 0, null], [$hold->name, $hold->kind, $hold->status]);
        $attributes = [
            'serverlock.token' => $held->token, 'serverlock.key' => 'report', 'serverlock.outcome' => 'released',
        ];
        self::assertSame($attributes, $hold->attributes);
        $points = [
            'serverlock.wait.duration s granted' => [1, 0.0], 'serverlock.held {lock}' => [2, 0],
            'serverlock.hold.duration s released' => [1, 7.0],
        ];
        self::assertEquals($points, $this->recorder->points);
    }

    public function testTheScopeHasTheVersionOfAllPackages(): void
    {
        $scope = ['serverlock', Telemetry::VERSION];
        self::assertSame([$scope, $scope], $this->recorder->scopes);
        $published = (string) file_get_contents(__DIR__ . '/../../node/package.json');
        self::assertStringContainsString('"version": "' . Telemetry::VERSION . '"', $published);
    }

    public function testARefusalATimeOutAndAnExceptionOfTheApplicationAreNotErrors(): void
    {
        $other = $this->others->lock('report', 30.0)->acquire();
        self::fails(LockRefusedException::class, fn () => $this->locks->lock('report', 30.0)->acquire());
        self::fails(LockTimeoutException::class, fn () => $this->locks->lock('report', 30.0, wait: 2.0)->acquire());
        $this->server->clock->after(1.0, static fn () => throw new \DomainException('as of a signal handler'));
        self::fails(\DomainException::class, fn () => $this->locks->lock('report', 30.0, wait: 5.0)->acquire());
        $other->release();
        $waits = $this->recorder->spans('lock.wait');
        foreach (['refused', 'timeout', 'cancelled'] as $at => $outcome) {
            self::assertEquals(self::waitOf($outcome), $waits[$at]->attributes);
            self::assertNull($waits[$at]->status);
        }
        self::assertSame([], $this->recorder->spans('lock.hold'));
    }

    public function testAnyOtherFailureIsAnError(): void
    {
        $this->server->refuse('report');
        self::fails(LockUnavailableException::class, fn () => $this->locks->lock('report', 30.0)->acquire());
        [$wait] = $this->recorder->ended;
        self::assertEquals(self::waitOf('unavailable', ['error.type' => 'unavailable']), $wait->attributes);
        self::assertSame('Error', $wait->status[0] ?? null);
    }

    public function testALossIsAnErrorAndAnEventOnce(): void
    {
        $held = $this->locks->lock('report', 30.0)->acquire();
        $this->server->lose($held);
        self::assertCount(1, $this->recorder->spans('lock.hold'), 'the loss ends it, not the release');
        self::assertFalse($held->release());
        unset($held);
        [$hold, $more] = [...$this->recorder->spans('lock.hold'), null];
        self::assertNull($more);
        self::assertSame('lost', $hold->attributes['serverlock.outcome']);
        self::assertSame('lost', $hold->attributes['error.type']);
        self::assertSame(['lock.lost'], $hold->events);
        self::assertSame('Error', $hold->status[0] ?? null);
        self::assertSame([1, 1], $this->recorder->points['serverlock.losses {loss}']);
        self::assertSame([2, 0], $this->recorder->points['serverlock.held {lock}']);
        self::assertSame(1, $this->recorder->points['serverlock.hold.duration s lost'][0]);
    }

    public function testALossThatOnlyTheReleaseNoticesIsOneToo(): void
    {
        $held = $this->locks->lock('report', 30.0)->acquire();
        $this->server->expire('report');
        self::assertFalse($held->release());
        self::assertSame('lost', $this->recorder->spans('lock.hold')[0]->attributes['serverlock.outcome']);
        self::assertSame([1, 1], $this->recorder->points['serverlock.losses {loss}']);
    }

    public function testAHoldThatTheApplicationHasDroppedExpires(): void
    {
        $this->locks->lock('report', 30.0)->acquire();
        gc_collect_cycles();
        self::assertSame('expired', $this->recorder->spans('lock.hold')[0]->attributes['serverlock.outcome']);
        self::assertSame([2, 0], $this->recorder->points['serverlock.held {lock}']);
    }

    public function testSeveralKeysAreAnArrayAndBytesAreEscaped(): void
    {
        $this->locks->allOf(['a', 'b'], 30.0)->run(static fn () => null);
        self::assertSame(['a', 'b'], $this->recorder->spans('lock.wait')[0]->attributes['serverlock.keys']);
        self::assertSame('LOCK.MACQUIRE', $this->recorder->spans('lock.wait')[0]->attributes['db.operation.name']);
        $this->locks->lock("\xffa", 30.0)->run(static fn () => null);
        self::assertSame('\xffa', $this->recorder->spans('lock.hold')[1]->attributes['serverlock.key']);
    }

    public function testMetricsHaveTheKeyOnlyOnRequest(): void
    {
        $this->server->locks($this->hooks(keyAttribute: true))->lock('report', 30.0)->run(static fn () => null);
        self::assertSame([2, 0], $this->recorder->points['serverlock.held {lock} report']);
        self::assertArrayHasKey('serverlock.hold.duration s released report', $this->recorder->points);
    }

    public function testATickEndsItsSpan(): void
    {
        $this->locks->once('report', 3600.0)->run(static fn () => null);
        self::assertCount(1, $this->recorder->spans('lock.hold'));
        self::assertSame('released', $this->recorder->spans('lock.hold')[0]->attributes['serverlock.outcome']);
    }

    public function testTheResultOfAnotherHolderIsAnOutcome(): void
    {
        $token = $this->server->call(['LOCK.ACQUIRE', 'report', 'PX', 30_000, 'ID', '1']);
        $release = ['LOCK.RELEASE', 'report', $token, 'RESULT', 'value'];
        $this->server->clock->after(5.0, fn () => $this->server->call($release));
        $compute = static fn () => self::fail('it computes');
        self::assertSame('value', $this->locks->singleFlight('report', 30.0, $compute));
        self::assertEquals([self::waitOf('result')], array_column($this->recorder->ended, 'attributes'));
    }

    public function testTheGlobalProvidersAreTheDefault(): void
    {
        Globals::$provider = $this->recorder;
        $this->server->locks(Telemetry::hooks())->lock('report', 30.0)->run(static fn () => null);
        self::assertCount(2, $this->recorder->ended);
    }

    public function testAnExceptionOfAWatchDoesNotLoseALock(): void
    {
        $watch = $this->createMock(Watch::class);
        foreach (['granted', 'ended'] as $method) {
            $watch->expects(self::once())->method($method)->willThrowException(new \LogicException('broken'));
        }
        $locks = $this->server->locks(new Hooks(began: static fn (array $keys): Watch => $watch));
        self::assertTrue($locks->lock('report', 30.0)->acquire()->release());
    }

    public function testAWatchIsOptional(): void
    {
        $locks = $this->server->locks(new Hooks(began: static fn (array $keys): ?Watch => null));
        $work = static fn (Held $held): bool => $held->isHeld();
        self::assertTrue($locks->lock('report', 30.0)->run($work));
    }
}
