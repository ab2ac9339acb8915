package dev.serverlock.internal.once;

/**
 * The tick that a hold runs. Times are in nanoseconds.
 *
 * @param margin what the server adds to the lease
 * @param isRecovery whether the lease of a process that ran expired within this window
 * @param isLong whether the lease lasts until the end of the window from the start
 */
public record Run(long tick, long period, Estimate estimate, long margin, boolean isRecovery, boolean isLong) {
    /**
     * When the lease must end, by the local clock, so that the server lets others in at the end of the window. Others
     * may get in a little later, but not earlier, if the estimate of the server's clock is wrong.
     */
    public long leaseEnds() {
        long end = Ticks.windowEnds(tick, period) + Math.min(estimate.doubt(), Estimate.MOST_DOUBT);
        return end - estimate.offset() - margin;
    }

    /** The same run, with a later estimate. */
    public Run with(Estimate later) {
        return new Run(tick, period, later, margin, isRecovery, isLong);
    }
}
