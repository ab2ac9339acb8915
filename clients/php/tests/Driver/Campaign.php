<?php

declare(strict_types=1);

namespace Serverlock\Tests\Driver;

use Serverlock\Held;
use Serverlock\Leader;
use Serverlock\Locks;

/** A process that only campaigns, or only observes the leader. */
final class Campaign
{
    private readonly Leader $leader;

    /** @param array<string, mixed> $order */
    public function __construct(private readonly Orders $orders, Locks $locks, private readonly array $order)
    {
        $lease = Described::seconds($order['lease_ms']);
        $options = array_intersect_key($order, ['owner' => true]);
        $this->leader = $locks->leader(Described::key($order['key']), $lease, ...$options);
    }

    public function lead(): never
    {
        $name = $this->order['leader'];
        $this->leader->run(function (Held $held) use ($name): void {
            Dispatcher::say(['event' => 'elected', 'leader' => $name, 'token' => $held->token]);
            try {
                while (($told = $this->orders->next(0.01)) === null) {
                    $held->check();
                }
            } finally {
                Dispatcher::say(['event' => 'deposed', 'leader' => $name, 'token' => $held->token]);
            }
            $this->obey($told);
        }, function (): bool {
            $told = $this->orders->next(0.0);
            return $told === null || $this->obey($told);
        });
        while (true) {
            $this->orders->next();
        }
    }

    public function observe(): never
    {
        foreach ($this->leader->observe() as $now) {
            Dispatcher::say(['event' => 'leader', 'observer' => $this->order['observer'], 'token' => $now->token,
                'owner' => $now->owner]);
        }
        exit(1);
    }

    /**
     * @param array<string, mixed> $told
     * @return bool whether the campaign continues
     */
    private function obey(array $told): bool
    {
        if ($told['do'] === 'stop') {
            $this->leader->stop();
        }
        Dispatcher::say(['n' => $told['n'], 'ok' => (object) []]);
        return $told['do'] !== 'stop';
    }
}
