<?php

declare(strict_types=1);

namespace Serverlock\Tests\Driver;

use Serverlock\Exception\LockException;
use Serverlock\Exception\LockLostException;
use Serverlock\Held;
use Serverlock\HeldOnce;
use Serverlock\Hooks;
use Serverlock\Lock;
use Serverlock\Locks;
use Serverlock\Once;
use Serverlock\Testing\Server;

/** One process of an application: it carries out one order after another. */
final class Worker
{
    private const KINDS = [Work::class => 'work', Cannot::class => 'cannot', Cancelled::class => 'cancelled'];

    private readonly Orders $orders;
    /** @var array<string, object> */
    private array $clients = [];
    /** @var array<string, Locks> */
    private array $managers = [];
    /** @var array<string, array{Locks, array<string, mixed>}> managers, and how they were opened */
    private array $opened = [];
    /** @var array<string, Lock> */
    private array $objects = [];
    /** @var array<string, Held> */
    private array $holds = [];
    /** @var array<string, Held> of scopes whose bodies run */
    private array $bodies = [];
    /** @var array<string, Lock|Once|\Closure(): array<string, mixed>> of scopes, including ended ones */
    private array $scopes = [];
    /** @var array<string, true> */
    private array $lost = [];
    /** @var array<string, Server> in-memory servers */
    private array $servers = [];
    private bool $isWaiting = false;

    public function __construct(private readonly string $client)
    {
        $this->orders = new Orders();
        self::endWithParent();
        pcntl_async_signals(true);
        pcntl_signal(SIGUSR1, function (): void {
            if ($this->isWaiting) {
                throw new Cancelled('cancelled');
            }
        });
    }

    public function play(): void
    {
        while (true) {
            $order = $this->orders->next();
            if ($order !== null) {
                $this->answer($order);
            }
        }
    }

    /** @param array<string, mixed> $order */
    private function answer(array $order): void
    {
        try {
            $ok = $this->carryOut($order);
            Dispatcher::say(['n' => $order['n'], 'ok' => (object) $ok]);
        } catch (\Throwable $error) {
            self::refuse($order, $error);
        }
    }

    /** @param array<string, mixed> $order */
    private static function refuse(array $order, \Throwable $error): void
    {
        $kind = $error instanceof LockException ? $error->kind : self::KINDS[$error::class] ?? 'unknown';
        $text = $kind === 'unknown' ? (string) $error : $error->getMessage();
        Dispatcher::say(['n' => $order['n'], 'error' => ['kind' => $kind, 'text' => $text]]);
    }

    /**
     * @param array<string, mixed> $order
     * @return array<string, mixed>
     */
    private function carryOut(array $order): array
    {
        switch ($order['do']) {
            case 'open':
                $hooks = $this->hooks($order['manager'], $order['hooks'] ?? false);
                $opened = $order['at']['kind'] === 'memory'
                    ? $this->inMemory($order['at']['name'], $hooks)
                    : Libraries::open($this->client, $order, $hooks);
                [$this->clients[$order['manager']], $this->managers[$order['manager']]] = $opened;
                $this->opened[$order['manager']] = [$this->managers[$order['manager']], $order];
                return [];
            case 'close':
                $this->managers[$order['manager']]->close();
                return [];
            case 'raw':
                $reply = Libraries::raw($this->clients[$order['manager']], $order['args']);
                return ['reply' => $reply];
            case 'advance':
                $this->servers[$order['name']]->clock->advance(Described::seconds($order['ms']));
                return [];
            case 'expire':
                $this->servers[$order['name']]->expire(Described::key($order['key']));
                return [];
            case 'lose':
                $held = isset($order['hold']) ? $this->holds[$order['hold']] : $this->bodies[$order['scope']];
                $this->servers[$order['name']]->lose($held);
                return [];
            case 'refuse':
                $this->servers[$order['name']]->refuse(Described::key($order['key']));
                return [];
            case 'allow':
                $this->servers[$order['name']]->allow(Described::key($order['key']));
                return [];
            case 'object':
                $this->objects[$order['object']] = Described::lock($this->managers[$order['manager']], $order);
                return [];
            case 'acquire':
                return $this->acquire($order);
            case 'scope':
                return $this->scope($order);
            case 'once':
                return $this->once($order);
            case 'single_flight':
                return $this->singleFlight($order);
            case 'again': // by work that was started in a scope, after the scope has ended
                return $this->again($order);
            case 'leave':
            case 'fail':
                return []; // check() has already ended the body
            case 'storm':
                return (new Storm($this->client, $this->opened[$order['manager']], $order))->play();
            case 'census':
                return Storm::census($this->managers);
            case 'drop':
                unset($this->holds[$order['hold']]);
                gc_collect_cycles();
                return [];
            case 'lead':
            case 'observe':
                Dispatcher::say(['n' => $order['n'], 'ok' => (object) []]);
                $campaign = new Campaign($this->orders, $this->managers[$order['manager']], $order);
                $order['do'] === 'lead' ? $campaign->lead() : $campaign->observe();
        }
        return $this->withHeld($this->holds[$order['hold']], $order['hold'], 'hold', $order);
    }

    /**
     * @param array<string, mixed> $order
     * @return array<string, mixed>
     */
    private function withHeld(Held $held, string $name, string $what, array $order): array
    {
        unset($this->lost["$what $name"]);
        try {
            switch ($order['do']) {
                case 'check':
                    $held->check();
                    return ['left_ms' => $held->left() * 1000];
                case 'left':
                    return ['left_ms' => $held->left() * 1000];
                case 'verify':
                    return ['left_ms' => $held->verify() * 1000];
                case 'extend':
                    $held->extend(isset($order['lease_ms']) ? Described::seconds($order['lease_ms']) : null);
                    return [];
                case 'release':
                    return ['held' => $held->release()];
                case 'fenced':
                    return ['reply' => $held->fenced(...$order['args'])];
                default:
                    throw new Cannot($order['do']);
            }
        } catch (LockLostException $lost) {
            $this->tellLost($what, $name, $lost);
            throw $lost;
        }
    }

    /** @return array{Server, Locks} */
    private function inMemory(string $name, ?Hooks $hooks): array
    {
        $server = $this->servers[$name] ??= new Server();
        return [$server, $server->locks($hooks, new StderrLogger())];
    }

    /** A session's end loses locks that no order is about. */
    private function tellLosses(): void
    {
        foreach (['hold' => $this->holds, 'scope' => $this->bodies] as $what => $all) {
            foreach ($all as $name => $held) {
                $held->hold->lost === null || $this->tellLost($what, (string) $name, $held->hold->lost);
            }
        }
    }

    private function tellLost(string $what, string $name, LockLostException $lost): void
    {
        if (!isset($this->lost["$what $name"])) {
            $this->lost["$what $name"] = true;
            Dispatcher::say(['event' => 'lost', $what => $name, 'text' => $lost->getMessage()]);
        }
    }

    /** @param array<string, mixed> $order */
    private function lock(array $order): Lock
    {
        return isset($order['object'])
            ? $this->objects[$order['object']]
            : Described::lock($this->managers[$order['manager']], $order);
    }

    /**
     * @param array<string, mixed> $order
     * @return array<string, mixed>
     */
    private function acquire(array $order): array
    {
        $lock = $this->lock($order);
        try {
            $this->isWaiting = true;
            Dispatcher::say(['began' => $order['n']]); // from here on it can be cancelled
            $held = $this->holds[$order['hold']] = $lock->acquire();
        } finally {
            $this->isWaiting = false;
        }
        unset($this->lost["hold {$order['hold']}"]);
        return self::shown($held);
    }

    /** @return array<string, mixed> */
    private static function shown(Held $held): array
    {
        $before = $held->predecessor;
        return ['token' => $held->token, 'predecessor' => $before === null ? null : [
            'overdue_ms' => $before->overdue * 1000, 'token' => $before->token, 'owner' => $before->owner]];
    }

    /**
     * @param array<string, mixed> $order
     * @return array<string, mixed>
     */
    private function scope(array $order): array
    {
        $name = $order['scope'];
        $lock = $this->scopes[$name] = $this->lock($order);
        $fork = null;
        try {
            $lock->run(function (Held $held) use ($name, &$fork): void {
                $this->body($held, $name, $fork);
            });
        } catch (Forked) {
            $fork?->inTheChild();
        }
        return [];
    }

    /**
     * @param array<string, mixed> $order
     * @return array<string, mixed>
     */
    private function once(array $order): array
    {
        $once = Described::once($this->managers[$order['manager']], $order);
        if (!isset($order['scope'])) {
            $result = $once->run(static fn (HeldOnce $held): string => "tick $held->tick");
            return ['outcome' => $result->outcome, 'value' => $result->value];
        }
        $this->scopes[$order['scope']] = $once;
        return ['outcome' => $once->run(fn (HeldOnce $held) => $this->body($held, $order['scope']))->outcome];
    }

    /**
     * @param array<string, mixed> $order
     * @return array<string, mixed>
     */
    private function singleFlight(array $order): array
    {
        $computed = false;
        $compute = function (Held $held) use ($order, &$computed): mixed {
            isset($order['scope']) && $this->body($held, $order['scope']);
            $computed = true;
            return Described::bytes($order['value']);
        };
        if (isset($order['scope'])) {
            $inner = array_diff_key($order, ['scope' => true]);
            $this->scopes[$order['scope']] = fn (): array => $this->singleFlight($inner);
        }
        $ask = Described::singleFlight($this->managers[$order['manager']], $order, $compute);
        $wasWaiting = $this->isWaiting;
        try {
            $this->isWaiting = true;
            Dispatcher::say(['began' => $order['n']]);
            $value = $ask();
            return ['value' => Described::shown($value), 'computed' => $computed];
        } finally {
            $this->isWaiting = $wasWaiting;
        }
    }

    /** Carries out the orders of a scope, and checks its lock every 10 ms. */
    private function body(Held $held, string $name, ?Fork &$fork = null): void
    {
        unset($this->lost["scope $name"]);
        $this->bodies[$name] = $held;
        try {
            $this->carryOutWithin($held, $name, $fork);
        } finally {
            unset($this->bodies[$name]);
        }
    }

    private function carryOutWithin(Held $held, string $name, ?Fork &$fork): void
    {
        Dispatcher::say(['event' => 'entered', 'scope' => $name, 'token' => $held->token]);
        while (true) {
            $told = $this->orders->next(0.01);
            if ($told === null) {
                $held->hold->isReleased || $this->checkScope($held, $name);
            } elseif (in_array($told['do'], ['leave', 'fail'], true)) {
                Dispatcher::say(['n' => $told['n'], 'ok' => (object) []]);
                $told['do'] === 'leave' ?: throw new Work('the work failed');
                return;
            } elseif ($told['do'] === 'fork') {
                $fork = new Fork($this->managers[$told['manager']], $held);
                $fork->begin(); // throws in the child
                Dispatcher::say(['n' => $told['n'], 'ok' => $fork->end()]);
            } else {
                $this->within($told, $held);
            }
        }
    }

    private function checkScope(Held $held, string $name): void
    {
        try {
            $held->check();
        } catch (LockLostException $lost) {
            $this->tellLost('scope', $name, $lost);
            Dispatcher::say(['event' => 'stopped', 'scope' => $name]);
            throw $lost;
        }
    }

    /** @param array<string, mixed> $told */
    private function within(array $told, Held $held): void
    {
        try {
            $ok = match (true) {
                $told['do'] === 'again' => $this->again($told),
                isset($told['manager']) || isset($told['name']) => $this->carryOut($told),
                $told['do'] === 'spawn' => [], // no thread: work after the scope in this process
                isset($told['hold']) => $this->withHeld($this->holds[$told['hold']], $told['hold'], 'hold', $told),
                default => $this->withHeld($held, $told['scope'], 'scope', $told),
            };
            Dispatcher::say(['n' => $told['n'], 'ok' => (object) $ok]);
        } catch (\Throwable $error) {
            self::refuse($told, $error);
        }
    }

    /**
     * @param array<string, mixed> $order
     * @return array<string, mixed>
     */
    private function again(array $order): array
    {
        $lock = $this->scopes[$order['scope']];
        if ($lock instanceof Once) {
            return ['outcome' => $lock->run(static fn () => null)->outcome];
        }
        if ($lock instanceof \Closure) {
            return $lock();
        }
        if ($order['nested'] ?? false) {
            return $lock->run(self::shown(...));
        }
        $held = $lock->acquire();
        if (isset($order['hold'])) {
            $this->holds[$order['hold']] = $held;
        }
        return self::shown($held);
    }

    private function hooks(string $manager, bool $areWanted): Hooks
    {
        if (!$areWanted) {
            return new Hooks(lost: $this->tellLosses(...));
        }
        $tell = static fn (string $name, string $field): \Closure =>
            static fn (string $key, float $seconds) => Dispatcher::say(['event' => 'hook', 'manager' => $manager,
                'name' => $name, 'key' => $key, $field => $seconds * 1000]);
        return new Hooks(
            $tell('granted', 'waited_ms'),
            $tell('refused', 'waited_ms'),
            function (string $key, float $seconds) use ($tell): void {
                $this->tellLosses();
                $tell('lost', 'held_ms')($key, $seconds);
            },
            $tell('released', 'held_ms'),
        );
    }

    /** If the suite kills the dispatcher, its workers die with it: PR_SET_PDEATHSIG. Without FFI they end later. */
    private static function endWithParent(): void
    {
        if (extension_loaded('ffi') && PHP_OS_FAMILY === 'Linux') {
            $parent = posix_getppid();
            \FFI::cdef('int prctl(int option, unsigned long signal);')->prctl(1, SIGKILL);
            if (posix_getppid() !== $parent) {
                exit(1);
            }
        }
    }
}
