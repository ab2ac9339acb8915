package dev.serverlock.spi;

/** The slots of a cluster. */
public final class Slots {
    /** The number of slots. */
    public static final int COUNT = 16384;

    private Slots() {}

    /**
     * Hashes a key: CRC16 of the part in braces, or of the whole key.
     *
     * @param key the key
     * @return its slot, from 0
     */
    public static int of(byte[] key) {
        int from = 0;
        int to = key.length;
        int open = indexOf(key, '{', 0);
        int close = open < 0 ? -1 : indexOf(key, '}', open + 1);
        if (close > open + 1) {
            from = open + 1;
            to = close;
        }
        int crc = 0;
        for (int at = from; at < to; at++) {
            crc ^= (key[at] & 0xff) << 8;
            for (int bit = 0; bit < 8; bit++) {
                crc = (crc & 0x8000) != 0 ? (crc << 1 ^ 0x1021) & 0xffff : crc << 1 & 0xffff;
            }
        }
        return crc % COUNT;
    }

    private static int indexOf(byte[] key, char letter, int from) {
        for (int at = from; at < key.length; at++) {
            if (key[at] == letter) {
                return at;
            }
        }
        return -1;
    }
}
