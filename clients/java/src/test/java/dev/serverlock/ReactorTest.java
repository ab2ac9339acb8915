package dev.serverlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.serverlock.lettuce.LettuceServer;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import reactor.core.Disposable;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** Locks in Reactor's pipelines, as the README shows them. */
class ReactorTest {
    private TestServer server;
    private RedisClient client;
    private Locks locks;

    @BeforeEach
    void open() throws Exception {
        server = new TestServer();
        RedisURI uri = RedisURI.create("127.0.0.1", server.port);
        client = RedisClient.create();
        locks = Locks.over(LettuceServer.of(client, uri, client.connect(uri)));
    }

    @AfterEach
    void close() throws Exception {
        locks.close();
        client.shutdown();
        server.close();
    }

    private <T> Mono<T> locked(String key, Function<Held, Mono<T>> work) {
        ServerLock lock = locks.lock(key, Duration.ofSeconds(30)).waiting(Locks.FOREVER);
        return Mono.usingWhen(
                        Mono.fromCompletionStage(lock::acquireAsync),
                        work,
                        held -> Mono.fromCompletionStage(held::releaseAsync))
                .doOnDiscard(Held.class, Held::releaseAsync);
    }

    @Test
    void subscribersTakeTurns() {
        AtomicInteger inside = new AtomicInteger();
        Mono<Integer> turn = locked(
                "turns",
                held -> Mono.fromCallable(inside::incrementAndGet)
                        .delayElement(Duration.ofMillis(1))
                        .doOnNext(count -> inside.decrementAndGet()));
        List<Integer> counts =
                Flux.range(0, 50).flatMap(number -> turn, 50).collectList().block();
        assertEquals(List.copyOf(java.util.Collections.nCopies(50, 1)), counts);
        assertTrue(server.isFree("turns"));
    }

    @Test
    void anErrorReleasesTheLock() {
        Mono<String> work = locked("fails", held -> Mono.error(new IllegalStateException("the work failed")));
        assertThrows(IllegalStateException.class, work::block);
        assertTrue(server.isFree("fails"));
    }

    @Test
    void cancellationsAtRandomMomentsLeaveNothingBehind() throws Exception {
        List<Disposable> all = new ArrayList<>();
        for (int number = 0; number < 500; number++) {
            all.add(locked("storm", held -> Mono.delay(Duration.ofMillis(1))).subscribe());
        }
        for (Disposable one : all) {
            Thread.sleep(0, ThreadLocalRandom.current().nextInt(999_999));
            one.dispose();
        }
        assertTrue(locked("storm", held -> Mono.just(held.token())).block() > 0);
        TestServer.until("the lock is free", () -> server.isFree("storm"));
        assertEquals("0", server.info("storm", "waiters"));
    }
}
