import dev.serverlock.ServerLock;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.net.Socket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.UnaryOperator;

/** One process of the comparison, in Java: Worker CONTENDER PORTS. run.py describes its input. */
public final class Worker {
    static final long LEASE_MS = Long.parseLong(System.getenv().getOrDefault("LEASE_MS", "30000"));
    static final long WAIT_MS = 120_000;
    static final int MOST_CLIENTS = 256;
    /** Redisson subscribes to a channel for each lock, or each waiter. Its default is 250 in all. */
    private static final String MANY_SUBSCRIPTIONS = ", 12,500 subscriptions";

    private final Lock.Contender contender;

    private Worker(Lock.Contender contender) {
        this.contender = contender;
    }

    /** ports: those of all nodes, the master's first. */
    static Lock.Contender contender(String name, int[] ports) throws Exception {
        int port = ports[0];
        switch (name) {
            case "jedis package", "jedis package, script":
                return Ours.jedis(port, UnaryOperator.identity());
            case "jedis package, replicas=1":
                return Ours.jedis(port, lock -> lock.replicas(1, Duration.ofSeconds(1)));
            case "jedis session":
                return Ours.jedis(port, ServerLock::session);
            case "jedis raw":
                return Ours.raw(port);
            case "jedis SET and DEL":
                return Ours.setAndDel(port);
            case "lettuce package":
                return Ours.lettuce(port);
            case "lettuce SET and DEL":
                return Ours.setAndDelOverLettuce(port);
            case "curator":
                return Others.curator(ports);
            case "hazelcast":
                return Others.hazelcast(ports);
            case "in one process":
                return Others.inOneProcess();
            default:
                if (name.startsWith("redisson ")) {
                    String kind = name.substring("redisson ".length());
                    boolean isForMany = kind.endsWith(MANY_SUBSCRIPTIONS);
                    kind = isForMany ? kind.substring(0, kind.length() - MANY_SUBSCRIPTIONS.length()) : kind;
                    return Others.redisson(ports, kind, isForMany ? 250 : 5);
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
                waits = Arrays.copyOf(waits, 2 * count);
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
        ExecutorService threads = threads(clients);
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

    /** With small stacks, because there can be 10,000. */
    private static ExecutorService threads(int count) {
        return Executors.newFixedThreadPool(count, body -> new Thread(null, body, "client", 256 * 1024));
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

    /** The time until each grant of a shared lock, and of the exclusive lock on the same key. */
    private String readersAndWriters(String key, int clients, int writers, double seconds) throws Exception {
        ExecutorService thread = Executors.newSingleThreadExecutor();
        Future<List<Measured>> written =
                thread.submit(() -> together(writers, seconds, n -> contender.writer(key), Worker::grants));
        thread.shutdown();
        List<Measured> read = together(clients - writers, seconds, n -> contender.reader(key), Worker::grants);
        String readers = json(read, 0);
        return readers.substring(0, readers.length() - 1) + ", \"writers\": " + json(written.get(), 0) + "}";
    }

    /** When a crowd is measured: the window opens some time after all have asked for their locks. */
    private static final class Window {
        final CountDownLatch asked;
        volatile boolean isOpened;
        volatile boolean isClosed;

        Window(int clients) {
            asked = new CountDownLatch(clients);
        }

        /**
         * The time until each grant after the window has opened. Only those before it closes count. A client that gives
         * up has waited, too.
         */
        Measured grants(Lock lock) throws InterruptedException {
            Measured measured = new Measured();
            asked.countDown();
            while (!isClosed) {
                long began = System.nanoTime();
                try {
                    Object held = lock.acquire();
                    if (isOpened) {
                        measured.add(System.nanoTime() - began);
                        measured.inTime += isClosed ? 0 : 1;
                    }
                    lock.release(held);
                } catch (Exception error) {
                    measured.add(System.nanoTime() - began);
                    measured.errors++;
                    Thread.sleep(10);
                }
            }
            return measured;
        }
    }

    /** Tells run.py when the window opens and when it closes, with a line each, because it measures the server. */
    private static List<Measured> crowd(int clients, double seconds, double warm, Locks locks) throws Exception {
        Window window = new Window(clients);
        ExecutorService threads = threads(clients);
        List<Future<Measured>> running = new ArrayList<>();
        for (int number = 0; number < clients; number++) {
            Lock lock = locks.lock(number);
            running.add(threads.submit(() -> window.grants(lock)));
        }
        window.asked.await();
        Thread.sleep((long) (warm * 1000));
        window.isOpened = true;
        System.out.println("{}");
        Thread.sleep((long) (seconds * 1000));
        window.isClosed = true;
        System.out.println("{}");
        List<Measured> every = new ArrayList<>();
        for (Future<Measured> measured : running) {
            every.add(measured.get());
        }
        threads.shutdown();
        return every;
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
            case "readers":
                return readersAndWriters(key, clients, Integer.parseInt(words[4]), seconds);
            case "crowd":
                int locks = Integer.parseInt(words[4]);
                double warm = Double.parseDouble(words[5]);
                return json(crowd(clients, seconds, warm, n -> contender.lock(key + ":" + n % locks)), 0);
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
        int[] ports =
                Arrays.stream(args[1].split(",")).mapToInt(Integer::parseInt).toArray();
        Worker worker = new Worker(contender(args[0], ports));
        System.out.println("{}");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        try {
            for (String line = orders.readLine(); line != null; line = orders.readLine()) {
                System.out.println(worker.answer(line.split(" ")));
            }
            Runtime.getRuntime().halt(0);
        } catch (Exception failed) {
            failed.printStackTrace();
            Runtime.getRuntime().halt(1); // the threads of libraries would keep it running
        }
    }
}
