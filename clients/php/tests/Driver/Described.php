<?php

declare(strict_types=1);

namespace Serverlock\Tests\Driver;

use Serverlock\Lock;
use Serverlock\Locks;
use Serverlock\Once;

/**
 * The lock that an order describes. With strict types, a program cannot pass every value of an order on to the package.
 */
final class Described
{
    /** @param array<string, mixed> $order */
    public static function lock(Locks $locks, array $order): Lock
    {
        $options = self::durations($order, ['wait', 'at_least', 'max_hold', 'replicas_within']);
        $flags = ['session', 'owner', 'details', 'replicas', 'fsync', 'reentrant'];
        $options += array_intersect_key($order, array_flip($flags));
        $lease = self::seconds($order['lease_ms']);
        if (isset($order['keys'])) {
            return $locks->allOf(array_map(self::key(...), $order['keys']), $lease, ...$options);
        }
        $key = self::key($order['key']);
        return match (true) {
            $order['shared'] ?? false => $locks->shared($key, $lease, ...$options),
            isset($order['limit']) => $locks->limit($key, $order['limit'], $lease, ...$options),
            $order['recover'] ?? false => $locks->recover($key, $lease, ...$options),
            default => $locks->lock($key, $lease, ...$options),
        };
    }

    /** @param array<string, mixed> $order */
    public static function once(Locks $locks, array $order): Once
    {
        $options = self::durations($order, ['lease', 'max_hold']);
        $options += array_intersect_key($order, array_flip(['rerun', 'owner']));
        return $locks->once(self::key($order['key']), self::seconds($order['period_ms']), ...$options);
    }

    /**
     * @param array<string, mixed> $order
     * @param list<string> $fields
     * @return array<string, float> options
     */
    private static function durations(array $order, array $fields): array
    {
        $options = [];
        foreach ($fields as $field) {
            if (array_key_exists("{$field}_ms", $order)) {
                $name = lcfirst(str_replace('_', '', ucwords($field, '_')));
                $options[$name] = self::seconds($order["{$field}_ms"]);
            }
        }
        return $options;
    }

    public static function seconds(mixed $milliseconds): float
    {
        if (!is_int($milliseconds) && !is_float($milliseconds)) {
            throw new Cannot('a duration that is ' . json_encode($milliseconds));
        }
        return $milliseconds / 1000;
    }

    public static function key(mixed $key): string
    {
        return match (true) {
            is_string($key) => $key,
            is_array($key) => (string) hex2bin($key['hex']),
            default => throw new Cannot('a key that is ' . json_encode($key)),
        };
    }
}
