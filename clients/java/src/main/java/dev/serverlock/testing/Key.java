package dev.serverlock.testing;

import dev.serverlock.internal.runtime.Clock;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/** A key: its holders, expired ones too, and its queue. */
final class Key {
    /** How long an expired grant is known. */
    static final long RETENTION = 60 * Clock.SECOND;
    /** How long the place of an attempt is reserved. */
    static final long PLACE = 10 * Clock.SECOND;

    private static final Comparator<Grant> BY_END = Comparator.comparingLong(grant -> grant.until);

    final String name;
    final List<Grant> holders = new ArrayList<>();
    /** In the order of arrival. */
    final List<Waiter> queue = new ArrayList<>();
    /** Serves the queue when a lease expires. */
    ManualClock.Alarm alarm;

    boolean isRefused;

    Key(String name) {
        this.name = name;
    }

    List<Grant> live(long now) {
        return holders.stream().filter(grant -> grant.isLive(now)).toList();
    }

    Grant withToken(long token) {
        return holders.stream()
                .filter(grant -> grant.token == token)
                .findFirst()
                .orElse(null);
    }

    /** The live grant of an attempt, or null. */
    Grant of(String id, long now) {
        return live(now).stream()
                .filter(grant -> grant.id.equals(id))
                .findFirst()
                .orElse(null);
    }

    /** The rule: fewer holders are live than the attempt allows, and none of them holds the lock alone. */
    boolean admits(Ask ask, long now) {
        List<Grant> live = live(now);
        return live.size() < Math.max(1, ask.most()) && live.stream().noneMatch(grant -> grant.isAlone);
    }

    /** The holder whose lease ended last, if none is live; otherwise null. */
    Grant expired(long now) {
        return live(now).isEmpty() ? latest() : null;
    }

    /** The holder whose lease ends last, or null. */
    Grant latest() {
        return holders.stream().max(BY_END).orElse(null);
    }

    /** When the next lease expires. */
    long nextEnd(long now) {
        return live(now).stream().mapToLong(grant -> grant.until).min().orElse(Clock.NEVER);
    }

    /**
     * Adds a holder. One that holds the lock alone replaces all expired ones; another one replaces the holder that held
     * it alone, or the first to expire if there is no room.
     */
    Grant grant(Ask ask, long token, long now) {
        Grant made = new Grant(ask, token, now);
        if (ask.isAlone()) {
            made.before = expired(now);
            holders.clear();
        } else if (!holders.isEmpty() && (holders.size() >= ask.most() || holders.get(0).isAlone)) {
            made.before = holders.stream().min(BY_END).orElseThrow();
            holders.remove(made.before);
        }
        if (made.before != null) {
            made.before.before = null;
        }
        holders.add(made);
        return made;
    }

    boolean hasWaiterBefore(Waiter one) {
        return queue.stream().anyMatch(other -> other.isWaiting && other.arrival < one.arrival);
    }

    /** Adds an attempt to the queue, in the order of arrival. */
    void join(Waiter waiter) {
        int place = 0;
        while (place < queue.size() && queue.get(place).arrival < waiter.arrival) {
            place++;
        }
        queue.add(place, waiter);
        waiter.at = this;
    }

    Waiter firstWaiting() {
        return queue.stream().filter(waiter -> waiter.isWaiting).findFirst().orElse(null);
    }

    int waiting() {
        return (int) queue.stream().filter(waiter -> waiter.isWaiting).count();
    }
}
