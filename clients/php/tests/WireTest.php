<?php

declare(strict_types=1);

namespace Serverlock\Tests;

use PHPUnit\Framework\TestCase;
use Serverlock\Core\ConnectionLost;
use Serverlock\Core\ReplyError;
use Serverlock\Wire\Address;
use Serverlock\Wire\Router;
use Serverlock\Wire\StreamConnection;
use Serverlock\Wire\Slot;

/** Connections, addresses and slots, without a server. */
final class WireTest extends TestCase
{
    /** @var resource */
    private $listener;

    /**
     * A connection, and its other end.
     *
     * @return array{StreamConnection, resource}
     */
    private function connection(): array
    {
        $listener = stream_socket_server('tcp://127.0.0.1:0');
        self::assertNotFalse($listener);
        $this->listener = $listener;
        $port = (int) substr((string) strrchr((string) stream_socket_get_name($listener, false), ':'), 1);
        $connection = StreamConnection::open(Address::of('127.0.0.1', $port), 1.0);
        $other = stream_socket_accept($listener);
        self::assertNotFalse($other);
        return [$connection, $other];
    }

    public function testRepliesOfAllKinds(): void
    {
        [$connection, $other] = $this->connection();
        $replies = [":42\r\n" => 42, "+OK\r\n" => 'OK', "$3\r\na\r\n\r\n" => "a\r\n",
            "$-1\r\n" => null, "*-1\r\n" => null,
            "*3\r\n:1\r\n*1\r\n\$1\r\nx\r\n\$-1\r\n" => [1, ['x'], null], "*0\r\n" => [], "$0\r\n\r\n" => ''];
        foreach ($replies as $bytes => $expected) {
            fwrite($other, $bytes);
            self::assertSame($expected, $connection->call(['PING', 1], 1.0));
        }
        self::assertSame("*2\r\n\$4\r\nPING\r\n\$1\r\n1\r\n", fread($other, 21));
        fwrite($other, "-DEADLOCK a cycle\r\n");
        try {
            $connection->call(['PING'], 1.0);
            self::fail('no error');
        } catch (ReplyError $error) {
            self::assertSame('DEADLOCK', $error->word);
        }
        self::assertTrue($connection->isOpen(), 'a server error is a reply');
    }

    public function testALateReplyClosesTheConnection(): void
    {
        [$connection, $other] = $this->connection();
        fwrite($other, "$5\r\nhel");
        try {
            $connection->call(['ECHO', 'hello'], 0.05);
            self::fail('no error');
        } catch (ConnectionLost $error) {
            self::assertSame('no reply in time', $error->getMessage());
        }
        self::assertFalse($connection->isOpen());
        $this->expectException(ConnectionLost::class);
        $connection->call(['PING'], 0.05);
    }

    public function testAReplyCanBeReadAfterAnException(): void
    {
        [$connection, $other] = $this->connection();
        $connection->send(['PING'], 1.0);
        fwrite($other, "$5\r\nhel");
        try {
            $connection->reply(0.05, static fn () => throw new \DomainException('from a signal handler'));
            self::fail('no error');
        } catch (\DomainException) {
        }
        self::assertTrue($connection->isOpen());
        self::assertFalse($connection->settle(0.01));
        fwrite($other, "lo\r\n");
        $end = hrtime(true) + 10e9;
        while (!$connection->settle(0.0) && hrtime(true) < $end) {
            self::assertTrue($connection->isOpen(), 'it peeks at the reply');
        }
        self::assertFalse($connection->isPending());
        fwrite($other, ":2\r\n");
        self::assertSame(2, $connection->call(['PING'], 1.0));
        $connection->send(['PING'], 1.0);
        fclose($other);
        self::assertFalse($connection->settle(10.0));
        self::assertFalse($connection->isOpen());
    }

    public function testTheEndOfAConnectionIsSeenWithoutACall(): void
    {
        [$connection, $other] = $this->connection();
        self::assertTrue($connection->isOpen());
        fclose($other);
        $end = hrtime(true) + 10e9;
        while ($connection->isOpen() && hrtime(true) < $end) {
            usleep(1000);
        }
        self::assertFalse($connection->isOpen());
    }

    public function testAReplyThatArrivesSlowlyIsReadInFull(): void
    {
        [$connection, $other] = $this->connection();
        $big = str_repeat('x', 300_000);
        stream_set_blocking($other, false);
        $bytes = '$' . strlen($big) . "\r\n$big\r\n";
        $write = function () use (&$bytes, $other): void {
            $bytes = substr($bytes, (int) fwrite($other, substr($bytes, 0, 50_000)));
        };
        $write();
        pcntl_async_signals(true);
        pcntl_signal(SIGALRM, static function () use ($write, &$bytes): void {
            $write();
            $bytes === '' || posix_kill((int) getmypid(), SIGALRM);
        });
        posix_kill((int) getmypid(), SIGALRM);
        try {
            self::assertSame($big, $connection->call(['GET', 'big'], 5.0));
        } finally {
            pcntl_signal(SIGALRM, SIG_DFL);
            pcntl_async_signals(false);
        }
    }

    public function testAddresses(): void
    {
        $uri = static fn (string $host, ?array $tls = null): string => Address::of($host, 7000, tls: $tls)->uri;
        self::assertSame('tcp://h:7000', $uri('h'));
        self::assertSame('tcp://[::1]:7000', $uri('::1'));
        self::assertSame('tls://h:7000', $uri('tls://h'));
        self::assertSame('tls://h:7000', $uri('h', []));
        self::assertSame('unix:///run/redis', $uri('/run/redis'));
        $address = Address::of('tls://h', 7000, ['user', 'secret'], 2);
        self::assertSame('tls://[::2]:7001', $address->at('::2:7001')->uri);
        self::assertSame(['user', 'secret'], $address->at('::2:7001')->auth);
        self::assertSame('::1:7000', Address::of('::1', 7000)->hostAndPort());
        self::assertSame(['secret'], Address::of('h', 1, [null, 'secret'])->auth);
        self::assertSame([], Address::of('h', 1, false)->auth);
    }

    public function testSlots(): void
    {
        self::assertSame(12739, Slot::of('123456789'));
        self::assertSame(12182, Slot::of('foo'));
        self::assertSame(Slot::of('user'), Slot::of('a{user}b{c}'));
        self::assertNotSame(Slot::of('{}a'), Slot::of('{}b'));
        self::assertNotSame(Slot::of('{a'), Slot::of('a'));
    }

    public function testClusterRedirectionsAreFollowed(): void
    {
        $slots = [[0, 8191, ['a', 1]], [8192, 16383, ['b', 2]]];
        $sent = [];
        $answers = [
            'a:1 CLUSTER' => [$slots, $slots],
            'b:2 GET' => [new ReplyError('MOVED 12182 c:3'), new ReplyError('ASK 12182 c:3'), 'y'],
            'c:3 GET' => ['x', 'z'], 'c:3 ASKING' => ['OK'],
        ];
        $cluster = new Router(function (string $server, array $words) use (&$answers, &$sent): mixed {
            $sent[] = "$server $words[0]";
            $answer = array_shift($answers["$server $words[0]"]);
            return $answer instanceof \Throwable ? throw $answer : $answer;
        }, fn (): array => ['a:1']);
        self::assertSame('x', $cluster->call('foo', ['GET', 'foo'], 1.0));
        self::assertSame('z', $cluster->call('foo', ['GET', 'foo'], 1.0), 'ASKING');
        self::assertSame('y', $cluster->call('foo', ['GET', 'foo'], 1.0), 'ASK applies once');
        $expected = ['a:1 CLUSTER', 'b:2 GET', 'c:3 GET', 'a:1 CLUSTER', 'b:2 GET', 'c:3 ASKING', 'c:3 GET', 'b:2 GET'];
        self::assertSame($expected, $sent);
    }
}
