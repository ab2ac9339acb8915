/** Loads what a program imports, for the part "start" of the benchmark: Jedis alone, or the package as well. */
public class Start {
    public static void main(String[] args) throws ClassNotFoundException {
        Class.forName("redis.clients.jedis.RedisClient");
        Class.forName("redis.clients.jedis.Connection");
        if (args[0].equals("package")) {
            Class.forName("dev.serverlock.Locks");
            Class.forName("dev.serverlock.jedis.JedisServer");
        }
    }
}
