/**
 * Numbers the ticks of a period on the server's clock. Pure: the caller passes the time. Times are in milliseconds.
 *
 * A tick begins at a multiple of the period. Its window is the time that is nearer to it than to any other tick: it
 * begins and ends half a period before and after the tick.
 */

export const LEAST_PERIOD = 10_000;
/** How much later than its window's end a kept lease may end: twice MOST_DOUBT, plus the time to reach the server. */
export const SLACK = 1000;

/** The nearest tick. Halfway between two, it is the later one, because the earlier one's window has ended. */
export const tickAt = (serverNow: number, period: number): number => Math.floor(serverNow / period + 0.5);

/** When the tick's window begins. */
export const beginOf = (tick: number, period: number): number => (tick - 0.5) * period;

/** When the tick's window ends. */
export const endOf = (tick: number, period: number): number => (tick + 0.5) * period;

/**
 * Whether a lease that expired then, on the server's clock, was that of a process that died within this window. The
 * lease of a tick that has run expires when its window ends, which is when the next window begins.
 */
export const isRecovery = (expired: number, tick: number, period: number): boolean =>
  expired > beginOf(tick, period) + SLACK;

/** Short enough that another process may still run the tick if one dies soon after the tick begins. */
export const defaultLease = (period: number): number => Math.min(10_000, period / 4);
