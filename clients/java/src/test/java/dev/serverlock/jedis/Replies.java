package dev.serverlock.jedis;

/** Opens what this package keeps to itself, to tests of others. */
public final class Replies {
    private Replies() {}

    /**
     * Maps as lists.
     *
     * @param reply as Jedis gives it
     * @return the same in RESP2 and RESP3
     */
    public static Object plain(Object reply) {
        return JedisNode.plain(reply);
    }
}
