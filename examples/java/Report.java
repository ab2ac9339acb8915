import dev.serverlock.Locks;
import dev.serverlock.jedis.JedisServer;
import java.time.Duration;
import redis.clients.jedis.RedisClient;

public class Report {
    public static void main(String[] args) throws InterruptedException {
        RedisClient client = RedisClient.create("localhost", 6379);
        Locks locks = Locks.over(JedisServer.of(client)); // one for each Redis client in the application
        locks.lock("report", Duration.ofSeconds(10))
                .waiting(Duration.ofMinutes(1))
                .run(held -> {
                    System.out.println("working, token " + held.token());
                    for (int step = 0; step < 10; step++) Thread.sleep(1000); // interrupted if the lock is lost
                }); // then throws LockLostException
        locks.close();
        client.close();
    }
}
