package dev.serverlock.internal.once;

import dev.serverlock.Predecessor;
import dev.serverlock.internal.command.Request;
import dev.serverlock.internal.hold.Hold;
import dev.serverlock.internal.runtime.Clock;
import java.time.Duration;
import java.util.List;
import java.util.function.UnaryOperator;

/**
 * What runs once per period, and its lock. The methods throw LockArgumentException for a bad value.
 *
 * @param period in nanoseconds
 * @param reruns whether a tick runs again if its process dies
 */
public record Schedule(Request request, long period, boolean reruns) {
    /** With the default options. */
    public static Schedule of(byte[] key, Duration period) {
        Duration any = Clock.duration(Ticks.LEAST_PERIOD);
        Request request = new Request(List.of(key), any, Request.Form.ONE, false, null);
        long nanos = request.checked("period", period, Ticks.LEAST_PERIOD, Request.TEN_YEARS);
        Schedule schedule = new Schedule(request.withDetails(), nanos, true);
        return schedule.withLease(Clock.duration(Ticks.defaultLease(nanos)));
    }

    public Schedule withLease(Duration value) {
        long nanos = request.checked("lease", value, Clock.MILLISECOND, period / 2);
        return with(changed -> changed.withLease(nanos));
    }

    public Schedule withReruns(boolean value) {
        return new Schedule(request, period, value);
    }

    /** A copy whose lock has other options. */
    public Schedule with(UnaryOperator<Request> change) {
        return new Schedule(change.apply(request), period, reruns);
    }

    /** The request whose lease lasts until the end of the current window. It is never renewed. */
    public Request untilWindowEnds(Estimate estimate, long margin, long now) {
        Run run = new Run(Ticks.at(now + estimate.offset(), period), period, estimate, margin, false, true);
        return request.withLease(Math.max(Clock.MILLISECOND, run.leaseEnds() - now))
                .withMaxHold(Duration.ofNanos(1));
    }

    /** The tick that a hold runs: that of the grant. margin: what the server adds to its lease. */
    public Run run(Hold hold, Estimate estimate, long margin) {
        // The server granted it between two moments. If a kept lease had to end first, its window has ended by the
        // later.
        long tick = Ticks.at(hold.granted() + estimate.offset(), period);
        long granted = hold.requested() + estimate.offset() - estimate.doubt();
        Predecessor before = hold.predecessor();
        boolean isRecovery = before != null && Ticks.isRecovery(granted - Clock.nanos(before.overdue()), tick, period);
        return new Run(tick, period, estimate, margin, isRecovery, !reruns);
    }
}
