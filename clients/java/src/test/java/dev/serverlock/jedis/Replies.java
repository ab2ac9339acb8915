package dev.serverlock.jedis;

/** Opens this package to other packages' tests. */
public final class Replies {
    private Replies() {}

    /**
     * Turns maps into lists.
     *
     * @param reply as Jedis returns it
     * @return the same in RESP2 and RESP3
     */
    public static Object plain(Object reply) {
        return JedisNode.plain(reply);
    }
}
