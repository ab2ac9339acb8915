package dev.serverlock.internal.command;

import dev.serverlock.LockArgumentException;
import dev.serverlock.LockLostException;
import dev.serverlock.internal.runtime.Clock;
import dev.serverlock.internal.runtime.Owner;
import dev.serverlock.internal.wire.Words;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.function.Consumer;
import java.util.stream.Stream;

/**
 * A lock's options, checked before anything is sent, and the words of its commands. Immutable. Times are in
 * nanoseconds. The constructor and all "with" methods throw LockArgumentException for a bad value.
 */
public final class Request implements Cloneable {
    public enum Form {
        ONE,
        MANY,
        RECOVERY
    }

    public static final long TEN_YEARS = 3650L * 86_400 * Clock.SECOND;
    private static final long LONGEST_NOTIFY = 3600 * Clock.SECOND;
    private static final int MOST_HOLDERS = 4096;
    private static final int MOST_KEYS = 1024;
    private static final int LONGEST_KEY = 4096;
    private static final int MOST_REPLICAS = 1000;
    private static final byte[] ID = Words.bytes("ID");
    private static final byte[] RESULT = Words.bytes("RESULT");

    private final List<byte[]> keys;
    /** Null if there is no queue for these keys without the module. */
    private final List<byte[]> queues;

    private final String name;
    private final Form form;
    private final boolean isShared;
    private final int limit; // 0 if there is no limit

    private long lease;
    private long waiting;
    private long atLeast;
    private long maxHold;
    private long within = Clock.SECOND;
    private boolean isReentrant;
    private boolean isSession;
    private boolean wantsDetails;
    private boolean isFsync;
    private boolean wantsResult;
    private int replicas;
    private String owner = Owner.hostAndPid(); // null for none
    private Consumer<LockLostException> onLost;

    private byte[][] head;
    private byte[][] tail;

    /** limit: null for none. */
    public Request(List<byte[]> keys, Duration lease, Form form, boolean isShared, Integer limit) {
        this.keys = keys;
        this.name = Words.shown(keys);
        this.form = form;
        this.isShared = isShared;
        this.limit = limit == null ? 0 : limit;
        queues = Queues.of(keys);
        checkKeys();
        if (limit != null && (limit < 1 || limit > MOST_HOLDERS)) {
            throw wrong("n is " + limit + ", not between 1 and " + MOST_HOLDERS);
        }
        this.lease = checked("lease", lease, Clock.MILLISECOND, TEN_YEARS);
        pack();
    }

    private void checkKeys() {
        if (keys.isEmpty()) {
            throw wrong("keys is empty: allOf needs at least one");
        }
        if (keys.size() > MOST_KEYS) {
            throw wrong("keys are " + keys.size() + ", more than " + MOST_KEYS);
        }
        for (int i = 0; i < keys.size(); i++) {
            if (keys.get(i).length > LONGEST_KEY) {
                throw wrong("a key is longer than " + LONGEST_KEY + " bytes");
            }
            for (int j = 0; j < i; j++) {
                if (Arrays.equals(keys.get(i), keys.get(j))) {
                    throw wrong("keys has the same key twice");
                }
            }
        }
    }

    private Request with(Consumer<Request> change) {
        try {
            Request copy = (Request) clone();
            change.accept(copy);
            copy.pack();
            return copy;
        } catch (CloneNotSupportedException impossible) {
            throw new AssertionError(impossible);
        }
    }

    /** nanos: a checked value. */
    public Request withLease(long nanos) {
        return with(copy -> copy.lease = nanos);
    }

    public Request withWaiting(Duration value) {
        long nanos = checked("wait", value, 0, Clock.NEVER);
        return with(copy -> copy.waiting = form == Form.RECOVERY ? 0 : nanos);
    }

    public Request withAtLeast(Duration value) {
        return with(copy -> copy.atLeast = checked("atLeast", value, 0, TEN_YEARS));
    }

    public Request withMaxHold(Duration value) {
        return with(copy -> copy.maxHold = checked("maxHold", value, 0, Clock.NEVER));
    }

    public Request withReplicas(int count, Duration value) {
        if (count < 0 || count > MOST_REPLICAS) {
            throw wrong("replicas is " + count + ", not between 0 and " + MOST_REPLICAS);
        }
        long nanos = checked("within", value, Clock.MILLISECOND, LONGEST_NOTIFY);
        return with(copy -> {
            copy.replicas = count;
            copy.within = nanos;
        });
    }

    public Request withFsync(Duration value) {
        long nanos = checked("within", value, Clock.MILLISECOND, LONGEST_NOTIFY);
        return with(copy -> {
            copy.isFsync = true;
            copy.within = Math.max(within, nanos);
        });
    }

    public Request withOwner(String value) {
        boolean isGood = value != null
                && !value.isEmpty()
                && value.length() <= Owner.LONGEST
                && value.chars().allMatch(Owner::isVisible);
        if (!isGood) {
            String shown = value == null ? "null" : "\"" + value.substring(0, Math.min(140, value.length())) + "\"";
            throw wrong("owner is " + shown + ", not 1 to 128 visible ASCII characters without a space");
        }
        return with(copy -> copy.owner = value);
    }

    public Request withoutOwner() {
        return with(copy -> copy.owner = null);
    }

    public Request withReentrant() {
        return with(copy -> copy.isReentrant = true);
    }

    public Request withSession() {
        return with(copy -> copy.isSession = true);
    }

    public Request withDetails() {
        return with(copy -> copy.wantsDetails = true);
    }

    /** Accepts another holder's result in place of the lock. */
    public Request withResult() {
        return with(copy -> copy.wantsResult = true);
    }

    public Request withOnLost(Consumer<LockLostException> value) {
        return with(copy -> copy.onLost = value);
    }

    /** Checks a lease for EXTEND. Null means the lock's own lease. */
    public long leaseOf(Duration value) {
        return value == null ? lease : checked("lease", value, Clock.MILLISECOND, TEN_YEARS);
    }

    /** Returns the value in nanoseconds. */
    public long checked(String argument, Duration value, long least, long most) {
        long nanos = value == null ? Long.MIN_VALUE : Clock.nanos(value);
        if (nanos < least || nanos > most) {
            String limit = most == Clock.NEVER
                    ? "at least " + Duration.ofNanos(least)
                    : "between " + Duration.ofNanos(least) + " and " + Duration.ofNanos(most);
            throw wrong(argument + " is " + value + ", not " + limit);
        }
        return nanos;
    }

    private LockArgumentException wrong(String reason) {
        return new LockArgumentException(name, reason, null);
    }

    private void pack() {
        Words first = new Words(keys.size() + 4).add(command(false));
        head = named(first).add("PX").add(Clock.milliseconds(lease)).done();
        Words last = new Words(6).addAll(share());
        if (owner != null) {
            last.add("OWNER").add(owner);
        }
        if (isSession) {
            last.add("SESSION");
        }
        if (wantsDetails && form == Form.ONE) {
            last.add("DETAILS");
        }
        tail = last.done();
    }

    private Words named(Words words) {
        if (form == Form.MANY) {
            words.add(keys.size());
        }
        keys.forEach(words::add);
        return words;
    }

    public List<byte[]> keys() {
        return keys;
    }

    /** The key that decides which server gets the commands. */
    public byte[] key() {
        return keys.get(0);
    }

    /** The keys in quotes, for messages. */
    public String name() {
        return name;
    }

    public long lease() {
        return lease;
    }

    /** 0 if the attempt does not wait. */
    public long waiting() {
        return waiting;
    }

    /** 0 if there is none. */
    public long atLeast() {
        return atLeast;
    }

    /** 0 if there is no limit. */
    public long maxHold() {
        return maxHold;
    }

    public int replicas() {
        return replicas;
    }

    public boolean isFsync() {
        return isFsync;
    }

    /** How long replicas and disks may take. */
    public long within() {
        return within;
    }

    /** Null if there is none. */
    public Consumer<LockLostException> onLost() {
        return onLost;
    }

    public boolean isReentrant() {
        return isReentrant;
    }

    public boolean isSession() {
        return isSession;
    }

    public boolean wantsResult() {
        return wantsResult;
    }

    public boolean isRecovery() {
        return form == Form.RECOVERY;
    }

    public boolean isExclusive() {
        return !isShared && limit == 0;
    }

    /** Why no attempt without a thread is possible; null if one is. */
    public LockArgumentException unfitForAsync() {
        if (isReentrant) {
            return wrong("reentrant needs a thread that holds the lock; use acquire, not acquireAsync");
        }
        if (isSession) {
            return wrong("session needs a thread that has the connection; use acquire, not acquireAsync");
        }
        if (needsConnection()) {
            return wrong((isFsync ? "fsync" : "replicas") + " needs a thread; use acquire, not acquireAsync");
        }
        return null;
    }

    /** Whether the attempt needs a dedicated connection. */
    public boolean needsConnection() {
        return isSession || replicas > 0 || isFsync;
    }

    public boolean isMany() {
        return form == Form.MANY;
    }

    /** Why the scripts cannot replace the module; null if they can. */
    public String needsModule() {
        if (isSession) {
            return "session needs the module, which is not loaded";
        }
        if (queues != null || isExclusive() && !isMany()) {
            return null;
        }
        String option = isMany() ? "allOf" : isShared ? "shared" : "limit";
        return "the key has a brace but no hash tag, so " + option + " needs the module, which is not loaded";
    }

    /** Whether attempts can wait in a queue without the module. */
    public boolean hasQueue() {
        return queues != null && !isMany();
    }

    /** Whether the scripts can leave out the lock's queue, if it has one. */
    public boolean mayLeaveOutQueue() {
        return hasQueue() && isExclusive();
    }

    /** A script's keys. isAlone: without the queue, if it may be left out. */
    List<byte[]> scriptKeys(boolean isAlone) {
        if (queues == null || isAlone && mayLeaveOutQueue()) {
            return keys;
        }
        return Stream.concat(keys.stream(), queues.stream()).toList();
    }

    /** A script's keys for one of several locks. */
    List<byte[]> scriptKeys(int lock, boolean isAlone) {
        return isMany() ? List.of(keys.get(lock), queues.get(lock)) : scriptKeys(isAlone);
    }

    public boolean hasKeyOf(Request other) {
        return keys.stream().anyMatch(other::hasKey);
    }

    private boolean hasKey(byte[] wanted) {
        return keys.stream().anyMatch(key -> Arrays.equals(key, wanted));
    }

    /** Whether it is a lock on the same keys, for as many holders. */
    public boolean isSameLock(Request other) {
        return isShared == other.isShared
                && limit == other.limit
                && keys.size() == other.keys.size()
                && keys.stream().allMatch(other::hasKey);
    }

    /** channel: null to wait by blocking. */
    public byte[][] acquire(byte[] id, long wait, String channel) {
        return acquire(id, wait, channel, wantsResult && wait > 0);
    }

    private byte[][] acquire(byte[] id, long wait, String channel, boolean takesResult) {
        Words words = new Words(head.length + tail.length + 7).addAll(head);
        if (wait > 0) {
            words.add("WAIT").add(Clock.milliseconds(Math.min(wait, channel == null ? TEN_YEARS : LONGEST_NOTIFY)));
        }
        if (takesResult) {
            words.add(RESULT);
        }
        words.add(ID).add(id);
        if (wait > 0 && channel != null) {
            words.add("NOTIFY").add(channel);
        }
        return words.addAll(tail).done();
    }

    /** The arguments of the portable script: all words after the keys. */
    public byte[][] scripted(byte[] id, long wait, String channel) {
        byte[][] words = acquire(id, wait, channel, false);
        return Arrays.copyOfRange(words, isMany() ? keys.size() + 2 : 2, words.length);
    }

    /** The words for the number of holders that the lock may have. */
    byte[][] share() {
        Words words = new Words(2);
        if (isShared) {
            words.add("SHARED");
        }
        if (limit > 0) {
            words.add("LIMIT").add(limit);
        }
        return words.done();
    }

    public byte[][] extend(long token, long nanos) {
        return own("LOCK.EXTEND", "LOCK.MEXTEND", token)
                .add("PX")
                .add(Clock.milliseconds(nanos))
                .done();
    }

    public byte[][] release(long token) {
        return own("LOCK.RELEASE", "LOCK.MRELEASE", token).done();
    }

    /** A release that passes on a result. */
    public byte[][] release(long token, byte[] result) {
        return own("LOCK.RELEASE", "LOCK.MRELEASE", token)
                .add(RESULT)
                .add(result)
                .done();
    }

    private Words own(String command, String forMany, long token) {
        return named(new Words(keys.size() + 5).add(form == Form.MANY ? forMany : command))
                .add(token);
    }

    /** The keys as text. */
    public List<String> names() {
        return keys.stream().map(Words::text).toList();
    }

    /** The command that acquires the lock, or the script's function. */
    public String command(boolean isPortable) {
        if (isPortable) {
            return form == Form.MANY ? "acquire_all" : form == Form.RECOVERY ? "recover" : "acquire";
        }
        return form == Form.MANY ? "LOCK.MACQUIRE" : form == Form.RECOVERY ? "LOCK.RECOVER" : "LOCK.ACQUIRE";
    }

    public byte[][] info() {
        return new Words(2).add("LOCK.INFO").add(key()).done();
    }

    /** Reads the reply to RELEASE. */
    public boolean wasHeld(Object reply) {
        return reply instanceof Long count && count == (form == Form.MANY ? keys.size() : 1);
    }
}
