<?php

declare(strict_types=1);

namespace Serverlock\Wire;

/**
 * The slot of a key in a cluster: CRC16 (XMODEM) of the key, or of its hash tag.
 *
 * @internal
 */
final class Slot
{
    public static function of(string $key): int
    {
        if (preg_match('/\A[^{]*\{([^}]+)\}/s', $key, $tag)) {
            $key = $tag[1];
        }
        $crc = 0;
        for ($at = 0, $length = strlen($key); $at < $length; ++$at) {
            $crc ^= ord($key[$at]) << 8;
            for ($bit = 0; $bit < 8; ++$bit) {
                $crc = $crc & 0x8000 ? ($crc << 1 ^ 0x1021) & 0xffff : $crc << 1 & 0xffff;
            }
        }
        return $crc % 16384;
    }
}
