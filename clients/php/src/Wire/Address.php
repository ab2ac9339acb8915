<?php

declare(strict_types=1);

namespace Serverlock\Wire;

/**
 * A server, with its credentials.
 *
 * @internal
 */
final class Address
{
    /**
     * @param list<string> $auth the arguments of AUTH
     * @param array<string, mixed>|null $tls the options of PHP's "ssl" context; null: no TLS
     */
    private function __construct(
        public readonly string $uri,
        public readonly array $auth,
        public readonly int $database,
        public readonly ?array $tls,
    ) {
    }

    /**
     * @param string $host a name, an address or a path; the library may prefix it with tls://
     * @param mixed $auth in the form that the libraries use: a password, or a user and a password
     * @param array<string, mixed>|null $tls
     */
    public static function of(string $host, int $port, mixed $auth = null, int $database = 0, ?array $tls = null): self
    {
        $auth = array_values(array_filter(
            array_map(static fn (mixed $word): string => is_scalar($word) ? (string) $word : '', (array) $auth),
            static fn (string $word): bool => $word !== '',
        ));
        if (str_starts_with($host, '/') || str_starts_with($host, 'unix://')) {
            return new self('unix://' . preg_replace('~^unix://~', '', $host), $auth, $database, null);
        }
        if (preg_match('~^(tls|ssl|tcp)://~', $host, $scheme)) {
            $host = substr($host, strlen($scheme[0]));
            $tls = $scheme[1] === 'tcp' ? $tls : $tls ?? [];
        }
        if (str_contains($host, ':') && !str_starts_with($host, '[')) {
            $host = "[$host]";
        }
        return new self(($tls === null ? 'tcp' : 'tls') . "://$host:$port", $auth, $database, $tls);
    }

    /** Another server of the same cluster, as host:port. */
    public function at(string $hostAndPort): self
    {
        $separator = (int) strrpos($hostAndPort, ':');
        [$host, $port] = [substr($hostAndPort, 0, $separator), (int) substr($hostAndPort, $separator + 1)];
        return self::of($host, $port, $this->auth, $this->database, $this->tls);
    }

    /** host:port, the form that cluster servers use. */
    public function hostAndPort(): string
    {
        return str_replace(['[', ']'], '', (string) preg_replace('~^[a-z]+://~', '', $this->uri));
    }
}
