/** Loads a program's imports, for the benchmark's part "start": Jedis alone, or also the package. */
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
