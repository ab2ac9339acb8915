import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;

/**
 * One client process of Jepsen's lock workloads: Client SYSTEM NUMBER SEED SECONDS LEASE_MS STORE SERVERS.
 *
 * <p>It prints {@code ready}, waits for a line, and then prints its history, one JSON object a line: an operation
 * begins with {@code invoke}, and ends with {@code ok}, {@code fail} (it did not happen; for a release: the lock had
 * been lost) or {@code info} (nobody knows). One that does not end is like one with {@code info}. Times are
 * microseconds of CLOCK_MONOTONIC, which all processes of a machine share.
 */
public final class Client {
    /** Locks of each workload. */
    private static final int KEYS = 2;

    private static final int PERMITS = 2;
    private static final long SHORTEST_MS = 20;
    /** Longer than a lease, so that it has to be renewed. */
    private static final long LONGEST_MS = 4_000;
    /** The work asks before each step whether the lock is still held. */
    private static final long STEP_MS = 100;

    private static final Object OUTPUT = new Object();

    private final String workload;
    private final String key;
    private final Lock lock;
    private final String store;
    private final int process;
    private final Random random;
    private int added;

    private Client(String workload, String key, Lock lock, String store, int process, long seed) {
        this.workload = workload;
        this.key = key;
        this.lock = lock;
        this.store = store;
        this.process = process;
        random = new Random(seed);
    }

    private static Lock.Maker maker(String system, List<String> servers, long leaseMs) throws Exception {
        return switch (system) {
            case "redis-lock", "redis-lock-grace" -> new Ours(servers, leaseMs);
            case "redisson" -> new RedissonLocks(servers, leaseMs);
            case "etcd" -> new EtcdLocks(servers, leaseMs);
            case "broken" -> new Broken();
            default -> throw new IllegalArgumentException("no system " + system);
        };
    }

    private static Lock lock(Lock.Maker maker, String workload, String key) throws Exception {
        return switch (workload) {
            case "mutex", "set" -> maker.mutex(key);
            case "fenced-mutex", "fenced-set" -> maker.fenced(key);
            default -> maker.semaphore(key, PERMITS);
        };
    }

    public static void main(String[] args) throws Exception {
        int number = Integer.parseInt(args[1]);
        long seed = Long.parseLong(args[2]);
        double seconds = Double.parseDouble(args[3]);
        Lock.Maker maker = maker(args[0], List.of(args[6].split(",")), Long.parseLong(args[4]));
        List<Client> clients = new ArrayList<>();
        for (String workload : List.of("mutex", "fenced-mutex", "semaphore", "set", "fenced-set")) {
            for (int at = 0; at < KEYS; at++) {
                String key = workload + "-" + at;
                Lock lock = lock(maker, workload, key);
                if (lock != null) {
                    int process = number * 100 + clients.size();
                    clients.add(new Client(workload, key, lock, args[5], process, seed * 1_000 + process));
                }
            }
        }
        System.out.println("ready");
        System.in.read();
        long end = System.nanoTime() + (long) (seconds * 1e9);
        List<Thread> threads = new ArrayList<>();
        for (Client client : clients) {
            Thread thread = new Thread(() -> client.run(end));
            thread.setDaemon(true);
            thread.start();
            threads.add(thread);
        }
        // A thread that is still in a call then has an operation without an end.
        long last = end + TimeUnit.SECONDS.toNanos(12);
        for (Thread thread : threads) {
            thread.join(Math.max(1, TimeUnit.NANOSECONDS.toMillis(last - System.nanoTime())));
        }
        synchronized (OUTPUT) {
            System.out.flush();
            Runtime.getRuntime().halt(0);
        }
    }

    private void say(String operation, String type, String field, Object value) {
        String line = String.format(
                "{\"process\": %d, \"workload\": \"%s\", \"key\": \"%s\", \"op\": \"%s\", \"type\": \"%s\", \"time\": %%d"
                        + (field == null ? "}" : ", \"" + field + "\": %s}"),
                process,
                workload,
                key,
                operation,
                type,
                value);
        synchronized (OUTPUT) {
            System.out.println(String.format(line, System.nanoTime() / 1_000));
        }
    }

    private void run(long end) {
        try {
            while (System.nanoTime() < end) {
                attempt(end);
                Thread.sleep(random.nextInt(50));
            }
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    private void attempt(long end) throws InterruptedException {
        say("acquire", "invoke", null, null);
        Lock.Grant grant;
        try {
            grant = lock.acquire();
        } catch (Exception error) {
            say("acquire", "info", "error", quoted(error));
            Thread.sleep(100);
            return;
        }
        if (grant == null) {
            say("acquire", "fail", null, null);
            return;
        }
        say("acquire", "ok", "token", grant.token());
        if (workload.endsWith("set")) {
            add(grant, end);
        } else {
            work(grant, end);
        }
        say("release", "invoke", "token", grant.token());
        try {
            say("release", grant.release() ? "ok" : "fail", "token", grant.token());
        } catch (Exception error) {
            say("release", "info", "error", quoted(error));
        }
    }

    /** Works for a while, short times more often than long ones, and returns whether the lock was held to the end. */
    private boolean work(Lock.Grant grant, long end) throws InterruptedException {
        double ms = SHORTEST_MS * Math.pow((double) LONGEST_MS / SHORTEST_MS, random.nextDouble());
        long done = Math.min(System.nanoTime() + (long) (ms * 1e6), end + TimeUnit.SECONDS.toNanos(1));
        for (long now = System.nanoTime(); now < done; now = System.nanoTime()) {
            try {
                if (!grant.isHeld()) {
                    return false;
                }
            } catch (Exception unknown) {
                return false;
            }
            Thread.sleep(Math.max(1, Math.min(STEP_MS, (done - now) / 1_000_000)));
        }
        return true;
    }

    /** Reads the set that the lock guards, works, and writes the set back with one element more. */
    private void add(Lock.Grant grant, long end) throws InterruptedException {
        long token = workload.equals("fenced-set") ? grant.token() : 0;
        int element = process * 100_000 + added++;
        try (Socket socket = new Socket(store.split(":")[0], Integer.parseInt(store.split(":")[1]));
                PrintWriter out = new PrintWriter(socket.getOutputStream(), true);
                BufferedReader in = new BufferedReader(new InputStreamReader(socket.getInputStream()))) {
            socket.setTcpNoDelay(true);
            say("read", "invoke", null, null);
            out.println("read " + key + " " + token);
            String set = in.readLine();
            boolean isStale = set.equals("stale");
            say("read", isStale ? "fail" : "ok", null, null);
            if (isStale || !work(grant, end)) {
                return;
            }
            say("add", "invoke", "value", element);
            out.println("write " + key + " " + token + " " + (set.isEmpty() ? "" : set + ",") + element);
            say("add", in.readLine().equals("ok") ? "ok" : "fail", "value", element);
        } catch (IOException error) {
            say("add", "info", "error", quoted(error));
        }
    }

    private static String quoted(Exception error) {
        String text = String.valueOf(error).replaceAll("[^ -~]|[\\\\\"%]", " ");
        return '"' + text.substring(0, Math.min(200, text.length())) + '"';
    }
}
