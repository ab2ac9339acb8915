package dev.serverlock;

import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.function.Consumer;

/** The options of a lock, checked before anything is sent, and the words of its commands. Immutable. */
final class Request implements Cloneable {
    enum Form {
        ONE,
        MANY,
        RECOVERY
    }

    private static final long TEN_YEARS = 3650L * 86_400 * Clock.SECOND;
    private static final long LONGEST_NOTIFY = 3600 * Clock.SECOND;
    private static final int MOST_HOLDERS = 4096;
    private static final int MOST_KEYS = 1024;
    private static final int LONGEST_KEY = 4096;
    private static final int MOST_REPLICAS = 1000;
    private static final byte[] ID = Words.bytes("ID");

    final List<byte[]> keys;
    final String name;
    final long lease;
    final Form form;
    final boolean isShared;
    /** 0: no limit. */
    final int limit;

    long wait;
    long atLeast;
    long maxHold;
    long within = Clock.SECOND;
    boolean isSession;
    boolean wantsDetails;
    boolean isFsync;
    int replicas;
    String owner;
    Consumer<LockLostException> onLost;

    private byte[][] head;
    private byte[][] tail;

    Request(List<byte[]> keys, Duration lease, Form form, boolean isShared, Integer limit) {
        this.keys = keys;
        this.name = Words.shown(keys);
        this.form = form;
        this.isShared = isShared;
        this.limit = limit == null ? 0 : limit;
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

    /** A copy with other options. */
    Request with(Consumer<Request> change) {
        try {
            Request copy = (Request) clone();
            change.accept(copy);
            copy.pack();
            return copy;
        } catch (CloneNotSupportedException impossible) {
            throw new AssertionError(impossible);
        }
    }

    void setWait(Duration value) {
        long nanos = checked("wait", value, 0, Clock.NEVER);
        wait = form == Form.RECOVERY ? 0 : nanos;
    }

    void setAtLeast(Duration value) {
        atLeast = checked("atLeast", value, 0, TEN_YEARS);
    }

    void setMaxHold(Duration value) {
        maxHold = checked("maxHold", value, 0, Clock.NEVER);
    }

    void setReplicas(int count, Duration value) {
        if (count < 0 || count > MOST_REPLICAS) {
            throw wrong("replicas is " + count + ", not between 0 and " + MOST_REPLICAS);
        }
        replicas = count;
        within = checked("within", value, Clock.MILLISECOND, LONGEST_NOTIFY);
    }

    void setFsync(Duration value) {
        isFsync = true;
        within = Math.max(within, checked("within", value, Clock.MILLISECOND, LONGEST_NOTIFY));
    }

    void setOwner(String value) {
        boolean isGood = value != null
                && !value.isEmpty()
                && value.length() <= 128
                && value.chars().allMatch(letter -> letter >= '!' && letter <= '~');
        if (!isGood) {
            String shown = value == null ? "null" : "\"" + value.substring(0, Math.min(140, value.length())) + "\"";
            throw wrong("owner is " + shown + ", not 1 to 128 visible ASCII characters without a space");
        }
        owner = value;
    }

    long leaseOf(Duration value) {
        return value == null ? lease : checked("lease", value, Clock.MILLISECOND, TEN_YEARS);
    }

    private long checked(String argument, Duration value, long least, long most) {
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
        Words first = new Words(keys.size() + 4)
                .add(form == Form.MANY ? "LOCK.MACQUIRE" : form == Form.RECOVERY ? "LOCK.RECOVER" : "LOCK.ACQUIRE");
        head = named(first).add("PX").add(Clock.milliseconds(lease)).done();
        Words last = new Words(6);
        if (isShared) {
            last.add("SHARED");
        }
        if (limit > 0) {
            last.add("LIMIT").add(limit);
        }
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

    /** The key that decides which server gets the commands. */
    byte[] key() {
        return keys.get(0);
    }

    boolean isExclusive() {
        return !isShared && limit == 0;
    }

    /** Whether the attempt needs a dedicated connection. */
    boolean needsConnection() {
        return isSession || replicas > 0 || isFsync;
    }

    /** The option that needs the module; null: none. */
    String needsModule() {
        if (isSession) {
            return "session";
        }
        if (isShared) {
            return "shared";
        }
        if (limit > 0) {
            return "limit";
        }
        return form == Form.MANY ? "allOf" : null;
    }

    boolean hasKeyOf(Request other) {
        return keys.stream().anyMatch(mine -> other.keys.stream().anyMatch(theirs -> Arrays.equals(mine, theirs)));
    }

    byte[][] acquire(byte[] id, long wait, String channel) {
        Words words = new Words(head.length + tail.length + 6).addAll(head);
        if (wait > 0) {
            words.add("WAIT").add(Clock.milliseconds(Math.min(wait, channel == null ? TEN_YEARS : LONGEST_NOTIFY)));
        }
        words.add(ID).add(id);
        if (wait > 0 && channel != null) {
            words.add("NOTIFY").add(channel);
        }
        return words.addAll(tail).done();
    }

    /** The arguments of the portable script: all words behind the key. */
    byte[][] scripted(byte[] id) {
        byte[][] words = acquire(id, 0, null);
        return Arrays.copyOfRange(words, 2, words.length);
    }

    byte[][] extend(long token, long nanos) {
        return own("LOCK.EXTEND", "LOCK.MEXTEND", token)
                .add("PX")
                .add(Clock.milliseconds(nanos))
                .done();
    }

    byte[][] release(long token) {
        return own("LOCK.RELEASE", "LOCK.MRELEASE", token).done();
    }

    private Words own(String command, String forMany, long token) {
        return named(new Words(keys.size() + 5).add(form == Form.MANY ? forMany : command))
                .add(token);
    }

    /** Reads the reply to RELEASE. */
    boolean wasHeld(Object reply) {
        return reply instanceof Long count && count == (form == Form.MANY ? keys.size() : 1);
    }
}
