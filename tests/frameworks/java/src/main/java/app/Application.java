package app;

import dev.serverlock.LockLostException;
import dev.serverlock.LockRefusedException;
import dev.serverlock.Locks;
import java.time.Duration;
import java.util.Optional;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.spring.annotation.EnableSchedulerLock;
import net.javacrumbs.shedlock.spring.annotation.SchedulerLock;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.actuate.health.HealthEndpoint;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBooleanProperty;
import org.springframework.boot.context.event.ApplicationReadyEvent;
import org.springframework.context.annotation.Bean;
import org.springframework.context.event.EventListener;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.integration.leader.Context;
import org.springframework.integration.leader.DefaultCandidate;
import org.springframework.integration.support.leader.LockRegistryLeaderInitiator;
import org.springframework.integration.support.locks.DefaultLockRegistry;
import org.springframework.integration.support.locks.LockRegistry;
import org.springframework.scheduling.annotation.EnableScheduling;
import org.springframework.scheduling.annotation.Scheduled;

/**
 * An application whose instances share tasks. Each writes what it does into Redis lists, with its process id: the list
 * {@code shed} for a task under ShedLock, {@code renewed} for a task under a lock of its own, {@code leader} for a
 * leader's terms. While the key {@code stay:shed} or {@code stay:renewed} exists, that task does not end.
 */
@SpringBootApplication
@EnableScheduling
@EnableSchedulerLock(defaultLockAtMostFor = "PT10S")
public class Application {
    private static final String PID = Long.toString(ProcessHandle.current().pid());

    private final StringRedisTemplate redis;
    private final Locks locks;
    private final boolean isUnlocked;

    Application(StringRedisTemplate redis, Locks locks, @Value("${app.unlocked:false}") boolean isUnlocked) {
        this.redis = redis;
        this.locks = locks;
        this.isUnlocked = isUnlocked;
    }

    public static void main(String[] args) {
        SpringApplication.run(Application.class, args);
    }

    private void say(String list, String what) {
        redis.opsForList().rightPush(list, what + " " + PID);
    }

    private void work(String list) throws InterruptedException {
        say(list, "begin");
        Thread.sleep(20); // the work
        String stay = "stay:" + list;
        if (redis.hasKey(stay)) {
            say(list, "stay");
            while (redis.hasKey(stay)) {
                Thread.sleep(10);
            }
        }
        say(list, "end");
    }

    @Scheduled(fixedDelay = 5)
    @SchedulerLock(name = "shed-lock")
    void shed() throws InterruptedException {
        work("shed");
    }

    @Scheduled(fixedDelay = 5)
    void renewed() throws InterruptedException {
        if (isUnlocked) {
            work("renewed");
            return;
        }
        try {
            locks.lock("renewed-lock", Duration.ofSeconds(10))
                    .waiting(Duration.ofSeconds(1))
                    .run(held -> work("renewed"));
        } catch (LockRefusedException somebodyElse) {
            // The next turn tries again.
        } catch (LockLostException lost) {
            say("renewed", "end"); // this instance did not run for 9 s; the next holder begins a second later
        }
    }

    @EventListener(ApplicationReadyEvent.class)
    void ready(ApplicationReadyEvent event) {
        HealthEndpoint health = event.getApplicationContext().getBean(HealthEndpoint.class);
        say("ready", health.healthForPath("serverlock").getStatus().toString());
    }

    @Bean
    LockRegistryLeaderInitiator leader(LockRegistry registry) {
        LockRegistryLeaderInitiator initiator =
                new LockRegistryLeaderInitiator(registry, new DefaultCandidate(PID, "leader-lock") {
                    @Override
                    public void onGranted(Context context) {
                        say("leader", "begin");
                    }

                    @Override
                    public void onRevoked(Context context) {
                        say("leader", "end");
                    }
                });
        initiator.setHeartBeatMillis(100);
        return initiator;
    }

    /** Shows what the tasks do without common locks. */
    @Bean
    @ConditionalOnBooleanProperty("app.unlocked")
    LockProvider everybody() {
        return configuration -> Optional.of(() -> {});
    }

    @Bean
    @ConditionalOnBooleanProperty("app.unlocked")
    LockRegistry inEachProcess() {
        return new DefaultLockRegistry();
    }
}
