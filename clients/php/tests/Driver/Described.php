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
     * @return \Closure(): string the call
     */
    public static function singleFlight(Locks $locks, array $order, \Closure $compute): \Closure
    {
        [$key, $lease] = [self::key($order['key']), self::seconds($order['lease_ms'])];
        $options = self::durations($order, ['wait', 'max_hold']) + array_intersect_key($order, ['owner' => true]);
        return static fn (): string => $locks->singleFlight($key, $lease, $compute, ...$options);
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
        return self::bytes($key) ?? throw new Cannot('a key that is ' . json_encode($key));
    }

    /** Null if the order has no bytes there. */
    public static function bytes(mixed $value): ?string
    {
        return match (true) {
            is_string($value) => $value,
            is_array($value) => (string) hex2bin($value['hex']),
            default => null,
        };
    }

    /** @return string|array{hex: string} bytes as an answer has them */
    public static function shown(string $bytes): string|array
    {
        return preg_match('//u', $bytes) === 1 ? $bytes : ['hex' => bin2hex($bytes)];
    }
}
