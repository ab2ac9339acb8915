package serverlock

import "time"

// Numbers the ticks of a period on the server's clock. Times are counted from the beginning of 1970.
//
// A tick begins at a multiple of the period. Its window is the time that is nearer to it than to any other tick: it
// begins and ends half a period before and after the tick.

const (
	leastPeriod = 10 * time.Second
	// How much later than its window's end a kept lease may end: twice mostDoubt, plus the time to reach the
	// server.
	ordinaryDelay = time.Second
)

// tickAt returns the nearest tick. Halfway between two, it is the later one, because the earlier one's window has
// ended.
func tickAt(serverNow, period time.Duration) int64 { return int64((serverNow + period/2) / period) }

// windowBegins returns when the tick's window begins.
func windowBegins(tick int64, period time.Duration) time.Duration {
	return time.Duration(tick)*period - period/2
}

// windowEnds returns when the tick's window ends.
func windowEnds(tick int64, period time.Duration) time.Duration { return windowBegins(tick+1, period) }

// isRecovery reports whether a lease that expired then was that of a process that died within this window. The lease of
// a tick that has run expires when its window ends, which is when the next window begins.
func isRecovery(expired time.Duration, tick int64, period time.Duration) bool {
	return expired > windowBegins(tick, period)+ordinaryDelay
}

// defaultLease is short enough that another process may still run the tick if one dies soon after the tick's beginning.
func defaultLease(period time.Duration) time.Duration { return min(10*time.Second, period/4) }
