import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** One process of the comparison, in Java: Worker CONTENDER PORT. run.py describes its input. */
public final class Worker {
    static final long LEASE_MS = Long.parseLong(System.getenv().getOrDefault("LEASE_MS", "30000"));
    static final long WAIT_MS = 120_000;
    static final int MOST_CLIENTS = 256;

    private final Lock.Contender contender;

    private Worker(Lock.Contender contender) {
        this.contender = contender;
    }

    static Lock.Contender contender(String name, int port) {
        switch (name) {
            case "jedis package", "jedis package, script":
                return Ours.jedis(port, false);
            case "jedis session":
                return Ours.jedis(port, true);
            case "jedis raw":
                return Ours.raw(port);
            case "lettuce package":
                return Ours.lettuce(port);
            case "curator":
                return Others.curator(port);
            case "hazelcast":
                return Others.hazelcast(port);
            case "in one process":
                return Others.inOneProcess();
            default:
                if (name.startsWith("redisson ")) {
                    return Others.redisson(port, name.substring("redisson ".length()));
                }
                throw new IllegalArgumentException("no contender " + name);
        }
    }

    /** What one client measured: nanoseconds of each wait, and how many of its grants were in time. */
    private static final class Measured {
        long[] waits = new long[1024];
        int count;
        int inTime;
        int errors;
        long longestGap;

        void add(long wait) {
            if (count == waits.length) {
                waits = java.util.Arrays.copyOf(waits, 2 * count);
            }
            waits[count++] = wait;
        }
    }

    interface Client {
        Measured run(Lock lock, long end) throws Exception;
    }

    interface Locks {
        Lock lock(int client) throws Exception;
    }

    private static List<Measured> together(int clients, double seconds, Locks locks, Client client) throws Exception {
        List<Lock> own = new ArrayList<>();
        for (int number = 0; number < clients; number++) {
            own.add(locks.lock(number));
        }
        long end = System.nanoTime() + (long) (seconds * 1e9);
        ExecutorService threads = Executors.newFixedThreadPool(clients);
        List<Callable<Measured>> bodies = new ArrayList<>();
        for (Lock lock : own) {
            bodies.add(() -> client.run(lock, end));
        }
        List<Measured> every = new ArrayList<>();
        try {
            for (Future<Measured> measured : threads.invokeAll(bodies)) {
                every.add(measured.get());
            }
        } finally {
            threads.shutdown();
        }
        return every;
    }

    /** The time of acquire and release. */
    private static Measured pairs(Lock lock, long end) throws Exception {
        Measured measured = new Measured();
        for (long asked = System.nanoTime(); asked < end; ) {
            lock.release(lock.acquire());
            long now = System.nanoTime();
            measured.add(now - asked);
            measured.inTime++;
            asked = now;
        }
        return measured;
    }

    /** The time until each grant. */
    private static Measured grants(Lock lock, long end) throws Exception {
        Measured measured = new Measured();
        for (long asked = System.nanoTime(); asked < end; asked = System.nanoTime()) {
            Object held = lock.acquire();
            long now = System.nanoTime();
            measured.add(now - asked);
            measured.inTime += now < end ? 1 : 0;
            lock.release(held);
        }
        return measured;
    }

    private long lastGrant;
    private long longestGap;

    private synchronized void granted(long now) {
        longestGap = Math.max(longestGap, now - lastGrant);
        lastGrant = now;
    }

    /** Goes on after errors, and notes the longest time without a grant. */
    private Measured stubborn(Lock lock, long end) throws Exception {
        Measured measured = new Measured();
        for (long asked = System.nanoTime(); asked < end; asked = System.nanoTime()) {
            try {
                Object held = lock.acquire();
                long now = System.nanoTime();
                granted(now);
                measured.add(now - asked);
                measured.inTime += now < end ? 1 : 0;
                lock.release(held);
            } catch (Exception error) {
                measured.errors++;
                Thread.sleep(10);
            }
        }
        return measured;
    }

    /** Increments the counter that the lock guards, and returns how many writes were accepted. */
    private static Measured increments(Lock lock, long end, int port, boolean isFenced) throws Exception {
        Measured measured = new Measured();
        try (Socket socket = new Socket("127.0.0.1", port);
                PrintWriter out = new PrintWriter(socket.getOutputStream(), true);
                BufferedReader in = new BufferedReader(new InputStreamReader(socket.getInputStream()))) {
            socket.setTcpNoDelay(true);
            while (System.nanoTime() < end) {
                try {
                    Object held = lock.acquire();
                    out.println("get " + ProcessHandle.current().pid());
                    long value = Long.parseLong(in.readLine());
                    Thread.sleep(5);
                    out.println("put " + (value + 1) + " " + (isFenced ? lock.token(held) : 0));
                    if (in.readLine().equals("ok")) {
                        measured.inTime++;
                    }
                    lock.release(held);
                } catch (IOException counter) {
                    throw counter;
                } catch (Exception error) {
                    measured.errors++;
                    Thread.sleep(10);
                }
            }
        }
        return measured;
    }

    /** run.py reads it. */
    private static String json(List<Measured> every, long gap) {
        Map<Long, Integer> buckets = new TreeMap<>();
        List<Integer> counts = new ArrayList<>();
        int errors = 0;
        for (Measured measured : every) {
            counts.add(measured.inTime);
            errors += measured.errors;
            for (int at = 0; at < measured.count; at++) {
                long bucket = Math.round(Math.log(Math.max(1, measured.waits[at])) / Math.log(1.02));
                buckets.merge(bucket, 1, Integer::sum);
            }
        }
        StringBuilder waits = new StringBuilder();
        buckets.forEach((bucket, count) -> waits.append(waits.isEmpty() ? "" : ", ")
                .append('"')
                .append(bucket)
                .append("\": ")
                .append(count));
        return "{\"counts\": " + counts + ", \"waits\": {" + waits + "}, \"errors\": " + errors + ", \"gap_ms\": "
                + gap / 1e6 + "}";
    }

    private String answer(String[] words) throws Exception {
        int clients = words.length > 2 ? Integer.parseInt(words[2]) : 1;
        double seconds = words.length > 3 ? Double.parseDouble(words[3]) : 0;
        String key = words[1];
        switch (words[0]) {
            case "free":
                return json(together(clients, seconds, n -> contender.lock(key + ":" + n), Worker::pairs), 0);
            case "hot":
                return json(together(clients, seconds, n -> contender.lock(key), Worker::grants), 0);
            case "slots":
                int permits = Integer.parseInt(words[4]);
                return json(together(clients, seconds, n -> contender.slots(key, permits), Worker::grants), 0);
            case "outage":
                lastGrant = System.nanoTime();
                longestGap = 0;
                List<Measured> every = together(clients, seconds, n -> contender.lock(key), this::stubborn);
                return json(every, longestGap);
            case "count":
                int port = Integer.parseInt(words[4]);
                boolean isFenced = words[5].equals("fenced");
                return json(
                        together(
                                clients,
                                seconds,
                                n -> contender.lock(key),
                                (lock, end) -> increments(lock, end, port, isFenced)),
                        0);
            case "hold":
                contender.lock(key).acquire();
                return "{}";
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] args) throws Exception {
        Worker worker = new Worker(contender(args[0], Integer.parseInt(args[1])));
        System.out.println("{}");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            System.out.println(worker.answer(line.split(" ")));
        }
        Runtime.getRuntime().halt(0);
    }
}
