<?php

declare(strict_types=1);

namespace Serverlock\Testing;

/**
 * What an ACQUIRE asks for. Times are ticks of the clock.
 *
 * @internal
 */
final class Ask
{
    private const FLAGS = ['SHARED', 'SESSION', 'DETAILS', 'RESULT'];
    private const MOST = 4096;

    public readonly int $lease;
    public readonly int $wait;
    public readonly string $id;
    public readonly ?string $owner;
    /** How many holders there may be, this one included. */
    public readonly int $most;
    /** Whether it may have the lock alongside others. */
    public readonly bool $shares;
    public readonly bool $hasDetails;
    public readonly bool $isSession;
    public readonly bool $takesResult;
    /** An ID, because dropping the last reference to the connection closes it. */
    public readonly ?int $connection;

    /**
     * @param list<string> $keys
     * @param list<string|int|float> $words what follows the keys
     */
    public function __construct(
        public readonly array $keys,
        array $words,
        public readonly bool $isRecovery,
        ?object $connection,
    ) {
        $this->connection = $connection === null ? null : spl_object_id($connection);
        $options = self::options($words);
        $this->lease = Clock::ticks($options['PX'] / 1000);
        $this->wait = Clock::ticks(($options['WAIT'] ?? 0) / 1000);
        $this->id = (string) ($options['ID'] ?? '');
        $this->owner = $options['OWNER'] ?? null;
        $this->shares = isset($options['SHARED']) || isset($options['LIMIT']);
        $this->most = $options['LIMIT'] ?? ($this->shares ? self::MOST : 1);
        $this->isSession = isset($options['SESSION']);
        $this->takesResult = isset($options['RESULT']);
        $this->hasDetails = isset($options['DETAILS']) || $isRecovery;
    }

    /**
     * @param list<string|int|float> $words
     * @return array<string, mixed>
     */
    public static function options(array $words): array
    {
        $options = [];
        while ($words) {
            $name = (string) array_shift($words);
            $options[$name] = in_array($name, self::FLAGS, true) ? true : array_shift($words);
        }
        return $options;
    }
}
