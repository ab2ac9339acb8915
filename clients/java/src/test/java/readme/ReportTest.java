package readme;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.serverlock.Held;
import dev.serverlock.LockLostException;
import dev.serverlock.LockUnavailableException;
import dev.serverlock.Locks;
import dev.serverlock.testing.LockServer;
import java.time.Duration;
import org.junit.jupiter.api.Test;

class ReportTest {
    @Test
    void theWorkStopsWhenTheLockIsLost() throws InterruptedException {
        LockServer server = new LockServer();
        try (Locks locks = server.locks()) { // pass them to the code under test
            Held held = locks.lock("report", Duration.ofSeconds(30)).acquire();
            server.clock().advance(Duration.ofHours(1)); // the lock is renewed
            assertEquals(Duration.ofSeconds(27), held.left());
            server.lose(held);
            assertThrows(LockLostException.class, held::check);
            server.refuse("report");
            assertThrows(
                    LockUnavailableException.class,
                    () -> locks.lock("report", Duration.ofSeconds(30)).acquire());
        }
    }
}
