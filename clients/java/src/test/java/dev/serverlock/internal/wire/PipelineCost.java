package dev.serverlock.internal.wire;

import com.sun.management.OperatingSystemMXBean;
import dev.serverlock.TestServer;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.jedis.JedisServer;
import dev.serverlock.spi.Call;
import dev.serverlock.spi.Node;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.RedisClient;

/**
 * Compares a {@link Pipeline} with a plain semaphore for the same number of connections: throughput, and the CPU time
 * of this process and of the server, in alternating rounds. Its arguments are the numbers of callers, rounds, and locks
 * that each caller takes per round: {@code java -cp ... dev.serverlock.internal.wire.PipelineCost 1000 7 20}.
 * SERVERLOCK_MODULE names the module.
 */
public final class PipelineCost {
    private static final long TIMEOUT = 60 * Clock.SECOND;

    private final TestServer server = new TestServer();
    private final RedisClient client = RedisClient.builder()
            .hostAndPort("127.0.0.1", server.port)
            .clientConfig(DefaultJedisClientConfig.builder()
                    .socketTimeoutMillis((int) (TIMEOUT / Clock.MILLISECOND))
                    .build())
            .build();
    private final Node node = JedisServer.of(client).node(new byte[0]);
    private final Map<String, Way> ways = new LinkedHashMap<>();
    private final Map<String, List<Cost>> found = new LinkedHashMap<>();

    private interface Way {
        void exchange(List<Call> calls);
    }

    /** The cost of one lock, in microseconds. */
    private record Cost(double wall, double client, double server) {}

    private PipelineCost() throws Exception {
        Pipeline pipeline = new Pipeline(node);
        ways.put("pipeline", calls -> pipeline.exchange(calls, TIMEOUT));
        for (int permits : new int[] {2, 4}) {
            ways.put("fair semaphore of " + permits, guarded(new Semaphore(permits, true)));
            ways.put("semaphore of " + permits, guarded(new Semaphore(permits)));
        }
    }

    private Way guarded(Semaphore turns) {
        return calls -> {
            turns.acquireUninterruptibly();
            try {
                node.exchange(calls, Clock.duration(TIMEOUT));
            } finally {
                turns.release();
            }
        };
    }

    /**
     * Measures, and prints medians.
     *
     * @param args callers, rounds, locks
     * @throws Exception if the server cannot be started
     */
    public static void main(String[] args) throws Exception {
        PipelineCost cost = new PipelineCost();
        try {
            for (int round = 0; round <= Integer.parseInt(args[1]); round++) { // the first warms up
                for (Map.Entry<String, Way> way : cost.ways.entrySet()) {
                    Cost one = cost.play(way.getValue(), Integer.parseInt(args[0]), Integer.parseInt(args[2]));
                    if (round > 0) {
                        cost.found
                                .computeIfAbsent(way.getKey(), name -> new ArrayList<>())
                                .add(one);
                    }
                }
            }
            cost.print();
        } finally {
            cost.client.close();
            cost.server.close();
        }
    }

    private Cost play(Way way, int callers, int locks) throws Exception {
        CountDownLatch begins = new CountDownLatch(1);
        List<Thread> all = new ArrayList<>();
        for (int number = 0; number < callers; number++) {
            byte[] key = Words.bytes("k" + number);
            Thread caller = new Thread(() -> {
                await(begins);
                for (int turn = 0; turn < locks; turn++) {
                    Call got = new Call(new Words(4)
                            .add("LOCK.ACQUIRE")
                            .add(key)
                            .add("PX")
                            .add(30_000)
                            .done());
                    way.exchange(List.of(got));
                    Call gone = new Call(new Words(3)
                            .add("LOCK.RELEASE")
                            .add(key)
                            .add((Long) got.value)
                            .done());
                    way.exchange(List.of(gone));
                }
            });
            caller.start();
            all.add(caller);
        }
        long client = cpuTime();
        long other = server.cpuTime();
        long began = System.nanoTime();
        begins.countDown();
        for (Thread caller : all) {
            caller.join();
        }
        double each = 1000.0 * callers * locks;
        return new Cost(
                (System.nanoTime() - began) / each, (cpuTime() - client) / each, (server.cpuTime() - other) / each);
    }

    private static void await(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    private static long cpuTime() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    private void print() {
        found.forEach((name, costs) -> {
            List<Cost> ratios = new ArrayList<>();
            for (int round = 0; round < costs.size(); round++) {
                Cost pipeline = found.get("pipeline").get(round);
                Cost one = costs.get(round);
                ratios.add(
                        new Cost(one.wall / pipeline.wall, one.client / pipeline.client, one.server / pipeline.server));
            }
            Cost cost = median(costs);
            Cost ratio = median(ratios);
            System.out.printf(
                    "%-20s per lock: %6.1f us (%.2f of the pipeline), client %5.1f us (%.2f), server %5.1f us (%.2f)%n",
                    name, cost.wall, ratio.wall, cost.client, ratio.client, cost.server, ratio.server);
        });
    }

    private static Cost median(List<Cost> costs) {
        return new Cost(
                middle(costs.stream().mapToDouble(Cost::wall).sorted().toArray()),
                middle(costs.stream().mapToDouble(Cost::client).sorted().toArray()),
                middle(costs.stream().mapToDouble(Cost::server).sorted().toArray()));
    }

    private static double middle(double[] sorted) {
        return sorted[sorted.length / 2];
    }
}
