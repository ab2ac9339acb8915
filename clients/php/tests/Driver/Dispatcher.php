<?php

declare(strict_types=1);

namespace Serverlock\Tests\Driver;

/** Hands orders out to workers, and passes on their output. */
final class Dispatcher
{
    private const OF_ALL = ['open', 'object', 'close'];

    /** @var list<Seat> */
    private array $seats = [];
    /** @var list<array<string, mixed>> orders that each worker needs before its first one */
    private array $known = [];
    /** @var array<string, Seat> by the object of an order */
    private array $owners = [];
    /** The worker with the in-memory servers. */
    private ?Seat $memory = null;
    /** @var array<string, true> managers of in-memory servers */
    private array $inMemory = [];
    private string $buffer = '';
    /** @var array<int, array{float, Seat}> orders with `cancel_after_ms`, and when they are cancelled */
    private array $due = [];

    /** @param list<string> $command of a worker */
    public function __construct(private readonly string $client, private readonly array $command)
    {
    }

    public function play(): void
    {
        self::say(['event' => 'ready', 'language' => 'php', 'client' => $this->client,
            'version' => Libraries::version($this->client), 'storms' => ['signal'],
            'can' => [...Libraries::CAN, ...(Storm::isPossible() ? Libraries::CAN_WITH_FFI : [])]]);
        stream_set_blocking(STDIN, false);
        while (true) {
            $streams = [STDIN, ...array_map(static fn (Seat $seat) => $seat->output, $this->seats)];
            $none = null;
            stream_select($streams, $none, $none, $this->due ? 0 : null, $this->due ? 10_000 : null);
            $this->cancelDue();
            foreach ($this->seats as $seat) {
                foreach ($seat->said() as $line) {
                    $this->hear($seat, $line);
                }
            }
            if (in_array(STDIN, $streams, true)) {
                $this->buffer .= fread(STDIN, 65536);
                if (feof(STDIN)) {
                    break;
                }
                while (($end = strpos($this->buffer, "\n")) !== false) {
                    $line = substr($this->buffer, 0, $end);
                    $this->buffer = substr($this->buffer, $end + 1);
                    $this->order(json_decode($line, true, flags: JSON_THROW_ON_ERROR));
                }
            }
        }
        foreach ($this->seats as $seat) {
            $seat->kill(); // nothing is released
        }
    }

    /** @param array<string, mixed> $order */
    private function order(array $order): void
    {
        if ($order['do'] === 'cancel') {
            foreach ($this->seats as $seat) {
                $seat->cancel($order['of']);
            }
            self::say(['n' => $order['n'], 'ok' => (object) []]);
            return;
        }
        if (($order['at']['kind'] ?? '') === 'memory') {
            $this->inMemory[$order['manager']] = true;
        }
        if (isset($order['name']) || isset($this->inMemory[$order['manager'] ?? ''])) {
            $this->tellMemory($order);
            return;
        }
        if (in_array($order['do'], self::OF_ALL, true)) {
            $first = $this->seats[0] ?? $this->seat();
            $first->tell($order);
            foreach (array_slice($this->seats, 1) as $seat) {
                $seat->tell(['n' => -1] + $order);
            }
            $this->known[] = ['n' => -1] + $order;
            return;
        }
        $about = match ($order['do']) {
            'again' => $order['scope'], // its lock is there, too
            'storm', 'census' => 'the storms', // leftovers are in the process that ran them
            'once' => $order['scope'] ?? 'the ticks', // one manager asks for the time
            default => $order['hold'] ?? $order['scope'] ?? $order['leader'] ?? $order['observer'] ?? '',
        };
        $begins = in_array($order['do'], ['acquire', 'scope', 'single_flight', 'lead', 'observe', 'raw'], true)
            || $order['do'] === 'once' && isset($order['scope']);
        $seat = match (true) {
            isset($order['within']) => $this->owners[$order['within']],
            $begins => $this->idle($order),
            default => $this->owners[$about] ?? $this->idle($order),
        };
        if ($about !== '') {
            $this->owners[$about] = $seat;
        }
        if ($order['do'] === 'again' && isset($order['hold'])) {
            $this->owners[$order['hold']] = $seat;
        }
        $seat->tell($order);
    }

    /**
     * One process has all the managers of in-memory servers.
     *
     * @param array<string, mixed> $order
     */
    private function tellMemory(array $order): void
    {
        if ($this->memory === null) {
            $this->memory = $this->seat();
            $this->memory->isTaken = true;
        }
        $about = $order['hold'] ?? $order['scope'] ?? null;
        if ($about !== null) {
            $this->owners[$about] = $this->memory;
        }
        $this->memory->tell($order);
    }

    /**
     * An idle worker. An order that may take a long time goes to a worker without locks, because a busy worker could
     * not release them.
     *
     * @param array<string, mixed> $order
     */
    private function idle(array $order): Seat
    {
        $takesLong = isset($order['wait_ms']) || isset($order['object'])
            || in_array($order['do'], ['scope', 'once', 'single_flight', 'lead', 'observe'], true);
        foreach ($this->seats as $seat) {
            if (!$seat->pending && !$seat->isTaken && !($takesLong && $seat->holds)) {
                return $seat;
            }
        }
        return $this->seat();
    }

    private function seat(): Seat
    {
        $seat = $this->seats[] = new Seat($this->command);
        foreach ($this->known as $order) {
            $seat->tell($order);
        }
        return $seat;
    }

    private function hear(Seat $seat, ?string $text): void
    {
        if ($text === null) {
            foreach ($seat->pending as $n => $order) {
                self::say(['n' => $n, 'error' => ['kind' => 'unknown', 'text' => 'the worker has ended']]);
            }
            $this->seats = array_values(array_filter($this->seats, static fn (Seat $other): bool => $other !== $seat));
            return;
        }
        $line = json_decode($text, true, flags: JSON_THROW_ON_ERROR);
        if (isset($line['began'])) {
            $seat->began($line['began']);
            $order = $seat->pending[$line['began']] ?? [];
            if (isset($order['cancel_after_ms'])) {
                $this->due[$order['n']] = [microtime(true) + $order['cancel_after_ms'] / 1000, $seat];
            }
            return;
        }
        if (isset($line['n']) && !$seat->answered($line)) {
            fwrite(STDERR, "$text\n");
            return;
        }
        fwrite(STDOUT, "$text\n");
    }

    private function cancelDue(): void
    {
        foreach ($this->due as $n => [$at, $seat]) {
            if (microtime(true) >= $at) {
                unset($this->due[$n]);
                $seat->cancel($n);
            }
        }
    }

    /** @param array<string, mixed> $line */
    public static function say(array $line): void
    {
        fwrite(STDOUT, json_encode($line, JSON_INVALID_UTF8_SUBSTITUTE | JSON_THROW_ON_ERROR) . "\n");
    }
}
