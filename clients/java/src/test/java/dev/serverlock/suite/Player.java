package dev.serverlock.suite;

import static dev.serverlock.suite.Driver.fields;
import static dev.serverlock.suite.Driver.say;

import com.google.gson.JsonObject;
import dev.serverlock.Census;
import dev.serverlock.Held;
import dev.serverlock.Hooks;
import dev.serverlock.Leader;
import dev.serverlock.LockException;
import dev.serverlock.LockLostException;
import dev.serverlock.Locks;
import dev.serverlock.Once;
import dev.serverlock.Outcome;
import dev.serverlock.ServerLock;
import dev.serverlock.SingleFlight;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.FutureTask;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;

/** Carries out orders. */
final class Player {
    private final Library library;
    private final Memory memory = new Memory();
    private final Map<String, Library.Client> clients = new ConcurrentHashMap<>();
    private final Map<String, Locks> locks = new ConcurrentHashMap<>();
    private final Map<String, ServerLock> objects = new ConcurrentHashMap<>();
    private final Map<String, Held> holds = new ConcurrentHashMap<>();
    private final Map<String, Scope> scopes = new ConcurrentHashMap<>();
    private final Map<String, BlockingQueue<FutureTask<Map<String, Object>>>> workers = new ConcurrentHashMap<>();
    private final Map<String, Leader> leaders = new ConcurrentHashMap<>();
    private final Map<Long, Thread> pending = new ConcurrentHashMap<>();

    Player(Library library) {
        this.library = library;
    }

    /** The body of a scope, which runs the tasks that it gets. */
    private record Scope(Again again, Held held, boolean stays, BlockingQueue<FutureTask<Map<String, Object>>> tasks) {}

    /** Asks for a scope's lock again, as the order says. */
    private interface Again {
        Map<String, Object> ask(JsonObject order) throws Exception;
    }

    void begin(long n, Thread thread) {
        pending.put(n, thread);
    }

    void end(long n) {
        pending.remove(n);
    }

    Map<String, Object> play(JsonObject order) throws Exception {
        String name = Order.text(order, "do");
        switch (name) {
            case "open" -> open(order);
            case "close" -> manager(order).close();
            case "raw" -> {
                return fields(
                        "reply",
                        plain(clients.get(Order.text(order, "manager"))
                                .raw(Order.texts(order.getAsJsonArray("args")))));
            }
            case "object" ->
                objects.put(Order.text(order, "object"), lock(order, "object", Order.text(order, "object")));
            case "acquire" -> {
                return order.has("within") ? within(order, name) : acquire(order);
            }
            case "scope" -> scope(order);
            case "once" -> {
                return once(order);
            }
            case "single_flight" -> {
                return order.has("within") ? within(order, name) : singleFlight(order);
            }
            case "leave", "fail", "again", "spawn" -> {
                return within(order, name);
            }
            case "storm" -> {
                return new Storm(order, key -> attempt(order, key))
                        .play(order.get("at_once").getAsInt());
            }
            case "census" -> {
                return Census.of(locks.values());
            }
            case "cancel" -> {
                Thread thread = pending.get(order.get("of").getAsLong());
                if (thread != null) {
                    thread.interrupt();
                }
            }
            case "drop" -> drop(Order.text(order, "hold"));
            case "lead", "resign", "stop", "observe" -> lead(order, name);
            case "advance" -> memory.advance(order);
            case "expire" -> memory.expire(order);
            case "refuse" -> memory.refuse(order);
            case "allow" -> memory.allow(order);
            case "lose" -> memory.lose(order, held(order));
            default -> {
                return asked(order, name);
            }
        }
        return null;
    }

    /** Futures cannot do everything, so an application uses both. */
    private Calls calls(JsonObject order) {
        boolean needsThread = Order.is(order, "session")
                || Order.is(order, "reentrant")
                || Order.is(order, "fsync")
                || order.has("replicas");
        return needsThread ? Calls.BLOCKING : library.calls();
    }

    private Map<String, Object> acquire(JsonObject order) throws Exception {
        ServerLock lock = described(order, "hold", Order.text(order, "hold"));
        Held held = order.has("cancel_after_ms")
                ? interrupted(
                        Order.span(order.get("cancel_after_ms")),
                        () -> calls(order).acquire(lock))
                : calls(order).acquire(lock);
        holds.put(Order.text(order, "hold"), held);
        return got(held);
    }

    /** Interrupts a call of this thread after a time, unless it has ended. */
    private static Held interrupted(Duration after, Callable<Held> call) throws Exception {
        Thread caller = Thread.currentThread();
        AtomicBoolean isOver = new AtomicBoolean();
        Thread timer = new Thread(
                () -> {
                    pause(after);
                    synchronized (isOver) {
                        if (!isOver.get()) {
                            caller.interrupt();
                        }
                    }
                },
                "cancel");
        timer.setDaemon(true);
        timer.start();
        try {
            return call.call();
        } finally {
            synchronized (isOver) {
                isOver.set(true);
            }
            Thread.interrupted(); // it was meant for the call
        }
    }

    private Map<String, Object> asked(JsonObject order, String name) throws Exception {
        Held held = held(order);
        switch (name) {
            case "check" -> {
                held.check();
                return fields("left_ms", ms(held.left()));
            }
            case "left" -> {
                return fields("left_ms", ms(held.left()));
            }
            case "verify" -> {
                return fields("left_ms", ms(held.verify()));
            }
            case "extend" -> held.extend(order.has("lease_ms") ? Order.span(order.get("lease_ms")) : null);
            case "release" -> {
                return fields("held", library.calls().release(held));
            }
            case "fenced" -> {
                String[] args = Order.texts(order.getAsJsonArray("args"));
                Object[] rest = java.util.Arrays.copyOfRange(args, 2, args.length, Object[].class);
                return fields("reply", plain(held.fenced(args[0], args[1], rest)));
            }
            default -> throw new Driver.Cannot(name);
        }
        return null;
    }

    private Held held(JsonObject order) {
        String scope = Order.text(order, "scope");
        return scope == null
                ? holds.get(Order.text(order, "hold"))
                : scopes.get(scope).held();
    }

    private static double ms(Duration span) {
        return span.toNanos() / 1e6;
    }

    private static Object plain(Object reply) {
        if (reply instanceof byte[] bytes) {
            return new String(bytes, StandardCharsets.UTF_8);
        }
        return reply instanceof List<?> list ? list.stream().map(Player::plain).toList() : reply;
    }

    private Locks manager(JsonObject order) {
        return locks.get(Order.text(order, "manager"));
    }

    private void open(JsonObject order) throws Exception {
        String manager = Order.text(order, "manager");
        Library.Client client = Memory.isAt(order) ? memory.open(order) : library.open(order);
        Locks.Builder builder = Locks.builder(client.server());
        if (order.has("timeout_ms")) {
            builder.timeout(Order.span(order.get("timeout_ms")));
        }
        if (order.has("portable") && !Order.is(order, "portable")) {
            builder.withoutScripts();
        }
        if (Order.is(order, "hooks")) {
            builder.hooks(hooks(manager));
        }
        clients.put(manager, client);
        locks.put(manager, builder.build());
    }

    private static Hooks hooks(String manager) {
        return new Hooks() {
            private void tell(String name, String key, String field, Duration span) {
                say(fields("event", "hook", "manager", manager, "name", name, "key", key, field, ms(span)));
            }

            @Override
            public void granted(String key, Duration waited) {
                tell("granted", key, "waited_ms", waited);
            }

            @Override
            public void refused(String key, Duration waited, LockException why) {
                tell("refused", key, "waited_ms", waited);
            }

            @Override
            public void lost(String key, Duration held, LockLostException why) {
                tell("lost", key, "held_ms", held);
            }

            @Override
            public void released(String key, Duration held, boolean inTime) {
                tell("released", key, "held_ms", held);
            }
        };
    }

    private ServerLock lock(JsonObject order, String name, String value) {
        return Order.lock(order, manager(order), lost(order, name, value));
    }

    private static Consumer<LockLostException> lost(JsonObject order, String name, String value) {
        return why -> {
            if (order.has("lost_takes_ms")) {
                pause(Order.span(order.get("lost_takes_ms")));
            }
            say(fields("event", "lost", name, value, "text", why.getMessage()));
        };
    }

    private static void pause(Duration span) {
        try {
            Thread.sleep(span.toMillis());
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    private ServerLock described(JsonObject order, String name, String value) {
        String object = Order.text(order, "object");
        return object == null ? lock(order, name, value) : objects.get(object);
    }

    private static Map<String, Object> got(Held held) {
        return fields(
                "token",
                held.token(),
                "predecessor",
                held.predecessor()
                        .map(before -> fields(
                                "overdue_ms", ms(before.overdue()), "token", before.token(), "owner", before.owner()))
                        .orElse(null));
    }

    private void scope(JsonObject order) throws Exception {
        String name = Order.text(order, "scope");
        ServerLock lock = described(order, "scope", name);
        ServerLock.Task<Exception> work =
                held -> obey(name, held, Order.is(order, "stays"), asked -> again(lock, asked));
        calls(order).run(lock, work);
    }

    private Map<String, Object> again(ServerLock lock, JsonObject order) throws Exception {
        if (Order.is(order, "nested")) {
            ServerLock.Work<Map<String, Object>, Exception> nothing = Player::got;
            return lock.call(nothing);
        }
        Held held = lock.acquire();
        String hold = Order.text(order, "hold");
        if (hold != null) {
            holds.put(hold, held);
        }
        return got(held);
    }

    private Map<String, Object> once(JsonObject order) throws Exception {
        String name = Order.text(order, "scope");
        Once once = Order.once(order, manager(order), lost(order, "scope", name));
        if (name == null) {
            Once.Work<String, Exception> nothing = held -> "tick " + held.tick();
            Once.Result<String> result = once.call(nothing);
            return fields("outcome", text(result.outcome()), "value", result.value());
        }
        Once.Task<Exception> work =
                held -> obey(name, held, false, asked -> fields("outcome", text(once.run(again -> {}))));
        return fields("outcome", text(once.run(work)));
    }

    /** One attempt of a storm. */
    private Storm.Attempt attempt(JsonObject order, String key) {
        JsonObject one = order.deepCopy();
        one.addProperty("key", key);
        if (Order.is(order, "single_flight")) {
            SingleFlight flight = Order.singleFlight(one, manager(order), why -> {});
            SingleFlight.Work<RuntimeException> compute = held -> new byte[] {1};
            return () -> flight.call(compute);
        }
        ServerLock lock = Order.lock(one, manager(order), why -> {});
        ServerLock.Task<RuntimeException> nothing = held -> {};
        return () -> library.calls().run(lock, nothing);
    }

    private Map<String, Object> singleFlight(JsonObject order) throws Exception {
        String name = Order.text(order, "scope");
        SingleFlight flight = Order.singleFlight(order, manager(order), lost(order, "scope", name));
        byte[] value = Order.value(order.get("value"));
        AtomicBoolean computed = new AtomicBoolean();
        SingleFlight.Work<Exception> compute = held -> {
            if (name != null) {
                obey(name, held, Order.is(order, "stays"), asked -> {
                    SingleFlight.Work<Exception> same = again -> value;
                    return fields("value", Order.plain(flight.call(same)));
                });
            }
            computed.set(true);
            return value;
        };
        Object got = Order.plain(flight.call(compute));
        return fields("value", got, "computed", computed.get());
    }

    private static String text(Outcome outcome) {
        return outcome.name().toLowerCase(Locale.ROOT);
    }

    /** The body of a scope. Where a loss does not stop it, it stops itself. */
    private void obey(String name, Held held, boolean stays, Again again) throws Exception {
        Scope mine = new Scope(again, held, stays, new LinkedBlockingQueue<>());
        scopes.put(name, mine);
        say(fields("event", "entered", "scope", name, "token", held.token()));
        boolean checks = library.calls() == Calls.FUTURES;
        while (true) {
            FutureTask<Map<String, Object>> task;
            try {
                task = checks
                        ? mine.tasks().poll(10, TimeUnit.MILLISECONDS)
                        : mine.tasks().take();
                if (task == null) {
                    held.check();
                    continue;
                }
            } catch (InterruptedException | LockLostException stopped) {
                say(fields("event", "stopped", "scope", name));
                if (mine.stays()) {
                    checks = false;
                    continue;
                }
                throw stopped;
            }
            task.run();
            try {
                if (task.get() == null) {
                    return;
                }
            } catch (java.util.concurrent.ExecutionException error) {
                if (error.getCause() instanceof Driver.WorkFailed failed) {
                    throw failed;
                }
            }
        }
    }

    /** Gives a scope's body a task. */
    private Map<String, Object> within(JsonObject order, String name) throws Exception {
        Scope scope = scopes.get(Order.text(order, order.has("within") ? "within" : "scope"));
        FutureTask<Map<String, Object>> task = new FutureTask<>(() -> {
            switch (name) {
                case "leave" -> {
                    return null;
                }
                case "fail" -> throw new Driver.WorkFailed();
                case "acquire" -> {
                    return acquire(order);
                }
                case "single_flight" -> {
                    return singleFlight(order);
                }
                case "spawn" -> spawn(Order.text(order, "worker"));
                default -> {
                    return scope.again().ask(order);
                }
            }
            return Map.of();
        });
        (order.has("worker") && name.equals("again") ? workers.get(Order.text(order, "worker")) : scope.tasks())
                .add(task);
        try {
            return task.get();
        } catch (java.util.concurrent.ExecutionException error) {
            if (error.getCause() instanceof Driver.WorkFailed) {
                return null;
            }
            throw (Exception) error.getCause();
        }
    }

    /** A thread that outlives the scope it was started in. */
    private void spawn(String worker) {
        BlockingQueue<FutureTask<Map<String, Object>>> tasks = new LinkedBlockingQueue<>();
        workers.put(worker, tasks);
        Thread thread = new Thread(
                () -> {
                    try {
                        while (true) {
                            tasks.take().run();
                        }
                    } catch (InterruptedException ended) {
                        Thread.currentThread().interrupt();
                    }
                },
                "worker");
        thread.setDaemon(true);
        thread.start();
    }

    private void drop(String hold) throws InterruptedException {
        holds.remove(hold);
        for (int turn = 0; turn < 5; turn++) {
            System.gc();
            Thread.sleep(20);
        }
    }

    private void lead(JsonObject order, String name) throws Exception {
        String leader = Order.text(order, "leader");
        switch (name) {
            case "resign" -> leaders.get(leader).resign();
            case "stop" -> leaders.get(leader).close();
            default -> {
                Leader campaign = manager(order).leader(Order.key(order), Order.span(order.get("lease_ms")));
                if (order.has("owner")) {
                    String owner = Order.text(order, "owner");
                    campaign = owner == null ? campaign.withoutOwner() : campaign.owner(owner);
                }
                if (name.equals("observe")) {
                    String observer = Order.text(order, "observer");
                    campaign.observe(who -> say(fields(
                            "event",
                            "leader",
                            "observer",
                            observer,
                            "token",
                            who.token() == 0 ? null : who.token(),
                            "owner",
                            who.token() == 0 ? null : who.owner())));
                    return;
                }
                leaders.put(
                        leader,
                        campaign.start(
                                token -> say(fields("event", "elected", "leader", leader, "token", token)),
                                token -> say(fields("event", "deposed", "leader", leader, "token", token))));
            }
        }
    }
}
