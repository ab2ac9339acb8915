<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use Serverlock\Core\Engine;
use Serverlock\Core\Form;
use Serverlock\Core\GivenUp;
use Serverlock\Core\Request;
use Serverlock\Exception\LockDeniedException;
use Serverlock\Exception\LockLostException;
use Serverlock\Exception\LockRefusedException;
use Serverlock\Exception\LockUnavailableException;
use Serverlock\LockOptions;
use Serverlock\Locks;
use Serverlock\Wire\Client;
use Serverlock\Wire\Phpredis;
use Serverlock\Wire\Predis;

/** Without the module, attempts wait for messages in the script's queue. */
final class QueueTest extends ServerTestCase
{
    private const QUEUE = 'report:queue:{report}';

    private static function engine(\Redis|\Predis\Client $client): Engine
    {
        return new Engine(self::wire($client), 5.0, true, null, null, mayWarn: false);
    }

    private static function wire(\Redis|\Predis\Client $client): Client
    {
        return $client instanceof \Redis ? new Phpredis($client) : new Predis($client);
    }

    private static function request(string $key = 'report', float $wait = 60.0): Request
    {
        return new Request([$key], 600.0, new LockOptions(wait: $wait));
    }

    private static function calls(\Redis $bare, string $command): int
    {
        $info = $bare->info('commandstats')["cmdstat_$command"] ?? 'calls=0';
        return preg_match('/calls=(\d+)/', $info, $found) === 1 ? (int) $found[1] : 0;
    }

    /** @dataProvider libraries */
    public function testAMessageNotifiesAnAttemptThatItIsItsTurn(string $library): void
    {
        $server = $this->server(hasModule: false);
        $bare = $server->connect();
        $held = self::engine($server->client($library))->acquire(self::request());
        $engine = self::engine($server->client($library));
        foreach ([1, 2] as $turn) { // the second time, the manager is already subscribed
            $asked = [];
            $goesOn = function () use ($bare, &$held, &$asked): bool {
                $asked[] = self::calls($bare, 'evalsha');
                if ($held !== null && $bare->zCard(self::QUEUE) === 1 && count($asked) >= 4) {
                    $held->release();
                    $held = null;
                }
                return true;
            };
            $got = $engine->acquire(self::request(), $goesOn);
            self::assertNull($held);
            self::assertLessThan(8, end($asked) - $asked[0], 'the attempt does not poll');
            self::assertSame(1, self::calls($bare, 'subscribe'));
            self::assertSame([], $bare->keys('*queue*'));
            $held = $got;
        }
        self::assertTrue($held->release());
        self::assertSame([], $bare->keys('*'));
    }

    /**
     * A release would find nobody subscribed, and pass over an attempt that is in the queue already.
     *
     * @dataProvider libraries
     */
    public function testAnAttemptJoinsTheQueueOnceItIsSubscribed(string $library): void
    {
        $server = $this->server(hasModule: false);
        $bare = $server->connect();
        $held = self::engine($server->client($library))->acquire(self::request());
        $client = new UnsubscribedClient(self::wire($server->client($library)));
        $before = self::calls($bare, 'evalsha');
        $goesOn = static function () use ($bare, $client, $before, &$held): bool {
            if (!$client->maySubscribe && self::calls($bare, 'evalsha') >= $before + 3) {
                self::assertSame(0, $bare->zCard(self::QUEUE));
                $client->maySubscribe = true;
            } elseif ($held !== null && $bare->zCard(self::QUEUE) === 1) {
                self::assertTrue($client->maySubscribe);
                self::assertTrue($held->release());
                $held = null;
            }
            return true;
        };
        $got = (new Engine($client, 0.3, true, null, null, mayWarn: false))->acquire(self::request(), $goesOn);
        self::assertNull($held, 'it was in the queue');
        self::assertTrue($got->release());
        self::assertSame([], $bare->keys('*'));
    }

    /** @dataProvider libraries */
    public function testAnAttemptThatIsGivenUpOrTimesOutLeavesNoPlace(string $library): void
    {
        $server = $this->server(hasModule: false);
        $bare = $server->connect();
        $held = self::engine($server->client($library))->acquire(self::request());
        $engine = self::engine($server->client($library));
        $hadPlace = false;
        $goesOn = static function () use ($bare, &$hadPlace): bool {
            return !($hadPlace = $hadPlace || $bare->zCard(self::QUEUE) === 1);
        };
        self::thrown(GivenUp::class, fn () => $engine->acquire(self::request(), $goesOn));
        self::assertTrue($hadPlace);
        self::assertSame(0, $bare->zCard(self::QUEUE));
        self::thrown(LockRefusedException::class, fn () => $engine->acquire(self::request(wait: 0.2)));
        self::assertSame(['report'], $bare->keys('*'));
        self::assertTrue($held->release());
    }

    /** @dataProvider libraries */
    public function testOtherKindsOfLocksWorkWithTheScript(string $library): void
    {
        $server = $this->server(hasModule: false);
        $bare = $server->connect();
        $locks = new Locks($server->client($library), warnWithoutModule: false);
        $readers = [$locks->shared('report', 30)->acquire(), $locks->shared('report', 30)->acquire()];
        self::thrown(LockRefusedException::class, fn () => $locks->lock('report', 30)->acquire());
        foreach ($readers as $held) {
            $held->extend(60);
            self::assertGreaterThan(40, $held->verify());
            self::assertSame('OK', $held->fenced('SET', 'x', (string) $held->token));
            self::assertTrue($held->release());
        }
        self::assertSame((string) $readers[1]->token, $bare->get('x'));
        $lost = $locks->shared('report', 30)->acquire();
        $bare->del('report');
        self::thrown(LockLostException::class, fn () => $lost->fenced('SET', 'x', 'late'));
        self::assertSame((string) $readers[1]->token, $bare->get('x'));
        $first = $locks->limit('pool', 2, 30)->acquire();
        $second = $locks->limit('pool', 2, 30)->acquire();
        self::thrown(LockRefusedException::class, fn () => $locks->limit('pool', 2, 30, wait: 0.2)->acquire());
        self::assertTrue($first->release() && $second->release());
        $all = $locks->allOf(['a', 'b'], 30)->acquire();
        $all->extend(60);
        self::assertGreaterThan(40, $all->verify());
        self::assertTrue($all->release());
        $one = $locks->lock('b', 30)->acquire();
        self::thrown(LockRefusedException::class, fn () => $locks->allOf(['a', 'b'], 30, wait: 0.2)->acquire());
        self::assertTrue($one->release());
        self::assertSame(['x'], $bare->keys('*'));
    }

    public function testAKeyWithABraceButNoHashTagHasNoQueue(): void
    {
        $server = $this->server(hasModule: false);
        $bare = $server->connect();
        $locks = new Locks($server->connect(), warnWithoutModule: false);
        $held = $locks->lock('a}', 30)->acquire();
        $before = self::calls($bare, 'evalsha');
        self::thrown(LockRefusedException::class, fn () => $locks->lock('a}', 30, wait: 1)->acquire());
        self::assertGreaterThan($before + 3, self::calls($bare, 'evalsha'), 'the attempt polls');
        self::assertTrue($held->release());
        foreach (
            [$locks->shared('a}', 30), $locks->limit('a}', 2, 30), $locks->allOf(['a', 'a}'], 30)] as $lock
        ) {
            $error = self::thrown(LockUnavailableException::class, fn () => $lock->acquire());
            self::assertMatchesRegularExpression('/brace but no hash tag.*module/', $error->getMessage());
        }
    }

    /** @dataProvider libraries */
    public function testAUserWhoMayNotUseTheQueueOrSubscribePolls(string $library): void
    {
        $server = $this->server(hasModule: false);
        $bare = $server->connect();
        foreach ([['~report', '+@all'], ['~*', '+@all', '-subscribe']] as $rights) {
            $bare->rawCommand('ACL', 'SETUSER', 'app', 'reset', 'on', '>secret', '&*', ...$rights);
            $bare->rawCommand('ACL', 'LOG', 'RESET');
            $client = $library === 'phpredis' ? $server->connect() : new \Predis\Client(
                ['port' => $server->port, 'username' => 'app', 'password' => 'secret'],
            );
            $client instanceof \Predis\Client || $client->auth(['app', 'secret']);
            $locks = new Locks($client, warnWithoutModule: false);
            $held = $locks->lock('report', 30)->acquire();
            $before = self::calls($bare, 'evalsha');
            self::thrown(LockRefusedException::class, fn () => $locks->lock('report', 30, wait: 1)->acquire());
            self::assertGreaterThan($before + 3, self::calls($bare, 'evalsha'), 'the attempt polls');
            self::assertCount(1, $bare->rawCommand('ACL', 'LOG'), 'only one call is denied');
            self::assertSame(0, $bare->zCard(self::QUEUE));
            self::assertTrue($held->release());
            if ($rights[0] === '~report') {
                self::thrown(LockDeniedException::class, fn () => $locks->shared('report', 30)->acquire());
                self::thrown(LockDeniedException::class, fn () => $locks->lock('theirs', 30)->acquire());
            }
        }
    }

    /** @dataProvider libraries */
    public function testAnApplicationErrorIsNotMistakenForALockError(string $library): void
    {
        $server = $this->server();
        $client = $server->client($library);
        $locks = new Locks($client);
        $held = $locks->lock('report', 30)->acquire();
        try {
            $client instanceof \Redis ? $client->rawCommand('LPOP', 'report', 'x', 'y') : $client->lpop('report');
        } catch (\Exception) {
            // phpredis keeps the error's text
        }
        self::thrown(LockRefusedException::class, fn () => $locks->lock('report', 30)->acquire());
        self::assertTrue($held->release());
    }
}
