package jdk.test.lib;

/** What the loops use of the JDK's test library. */
public final class Utils {
    private Utils() {}

    public static long adjustTimeout(long millis) {
        return 10 * millis;
    }
}
