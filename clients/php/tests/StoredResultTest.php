<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use Serverlock\Core\Answered;
use Serverlock\Core\Engine;
use Serverlock\Core\Request;
use Serverlock\Held;
use Serverlock\LockOptions;
use Serverlock\Locks;
use Serverlock\Wire\Phpredis;
use Serverlock\Wire\Predis;

/** Without the module, a holder stores its result, and those that wait get it with the lock. */
final class StoredResultTest extends ServerTestCase
{
    private const RESULT = "42 \0pages\xff";

    private \Redis $bare;

    private static function engine(\Redis|\Predis\Client $client): Engine
    {
        $wire = $client instanceof \Redis ? new Phpredis($client) : new Predis($client);
        return new Engine($wire, 5.0, true, null, null, mayWarn: false);
    }

    private static function request(string $key): Request
    {
        return new Request([$key], 600.0, new LockOptions(wait: 60.0), takesResult: true);
    }

    /**
     * An attempt, during whose wait the holder releases the lock: the result with which the attempt ends, or its lock.
     */
    private function waits(\Redis|\Predis\Client $client, Held $held, string $key, ?string $result): Held|string
    {
        $release = function () use (&$held, $key, $result): bool {
            if ($held !== null && $this->bare->zCard((string) Request::queueOf($key)) === 1) {
                $held->hold->result = $result;
                $held->release();
                $held = null;
            }
            return true;
        };
        try {
            return self::engine($client)->acquire(self::request($key), $release);
        } catch (Answered $answered) {
            return $answered->result;
        }
    }

    /** @dataProvider libraries */
    public function testAWaiterGetsTheResultThatWasStoredWhileItWaited(string $library): void
    {
        $server = $this->server(hasModule: false);
        $this->bare = $server->connect();
        $client = $server->client($library);
        $client instanceof \Redis && $client->setOption(\Redis::OPT_SERIALIZER, \Redis::SERIALIZER_PHP);
        foreach (['page' => 'page:result:{page}', '{42}:page' => '{42}:page:result'] as $key => $resultKey) {
            $this->bare->set($resultKey, '5 old');
            $held = self::engine($server->client($library))->acquire(self::request($key));
            self::assertSame(self::RESULT, $this->waits($client, $held, $key, self::RESULT));
            self::assertSame("$held->token " . self::RESULT, $this->bare->get($resultKey));
            self::assertEqualsWithDelta(600_000, $this->bare->pttl($resultKey), 100_000);
            self::assertSame(0, $this->bare->exists($key), 'the lock is free');
            self::assertSame(0, $this->bare->zCard((string) Request::queueOf($key)));
        }
    }

    /** @dataProvider libraries */
    public function testAnOldResultIsNotTaken(string $library): void
    {
        $server = $this->server(hasModule: false);
        $this->bare = $server->connect();
        $this->bare->set('page:result:{page}', '5 old');
        foreach ([null, str_repeat('x', 65_537)] as $result) {
            $held = self::engine($server->client($library))->acquire(self::request('page'));
            $next = $this->waits($server->client($library), $held, 'page', $result);
            self::assertInstanceOf(Held::class, $next, 'it computes');
            self::assertTrue($next->release());
            self::assertSame('5 old', $this->bare->get('page:result:{page}'));
        }
    }

    /** @dataProvider libraries */
    public function testWhereTheResultsKeyMayNotBeUsedEachComputes(string $library): void
    {
        $server = $this->server(hasModule: false);
        $this->bare = $server->connect();
        $rights = ['~page', '~page:queue:{page}', '+@all', '&*'];
        $this->bare->rawCommand('ACL', 'SETUSER', 'app', 'on', '>secret', ...$rights);
        $client = function () use ($server, $library): \Redis|\Predis\Client {
            $user = ['username' => 'app', 'password' => 'secret'];
            if ($library === 'predis') {
                return new \Predis\Client(['port' => $server->port] + $user);
            }
            $client = $server->connect();
            $client->auth(array_values($user));
            return $client;
        };
        $held = self::engine($client())->acquire(self::request('page'));
        $next = $this->waits($client(), $held, 'page', '42');
        self::assertInstanceOf(Held::class, $next, 'it computes');
        self::assertTrue($next->release());
    }

    public function testANameWithABraceButNoHashTagHasNoResult(): void
    {
        $server = $this->server(hasModule: false);
        $locks = new Locks($server->connect(), warnWithoutModule: false);
        self::assertSame('42', $locks->singleFlight('a}', 30.0, static fn (): string => '42'));
        self::assertSame([], $server->connect()->keys('*'));
    }
}
