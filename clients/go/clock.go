package serverlock

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

var (
	start      = time.Now()
	leaseClock = newClock(system)
)

// now is the time since the process started, including time while the machine was suspended.
func now() time.Duration { return leaseClock.now() }

// clock keeps running while the machine is suspended. Go's monotonic clock does not, so clock counts the larger of the
// times that have passed on it and on the wall clock. Setting the wall clock back never lengthens a lease; setting it
// forward ends leases early.
type clock struct {
	read  func() (monotonic, wall time.Duration)
	mu    sync.Mutex
	known atomic.Pointer[lead]
}

// lead is how far the wall clock is ahead of the monotonic one, and the time that the monotonic clock has missed.
type lead struct {
	ahead, missed time.Duration
}

// The two clocks are not read at exactly the same moment.
const jitter = 10 * time.Millisecond

func newClock(read func() (monotonic, wall time.Duration)) *clock {
	c := &clock{read: read}
	monotonic, wall := read()
	c.known.Store(&lead{ahead: wall - monotonic})
	return c
}

func system() (monotonic, wall time.Duration) {
	read := time.Now()
	return read.Sub(start), read.Round(0).Sub(start.Round(0)) // Round strips the monotonic reading
}

func (c *clock) now() time.Duration {
	monotonic, wall := c.read()
	known := c.known.Load()
	if ahead := wall - monotonic; ahead < known.ahead || ahead > known.ahead+jitter {
		known = c.learn()
	}
	return monotonic + known.missed
}

// learn reads both clocks again: the goroutine may have been preempted between the first two readings.
func (c *clock) learn() *lead {
	c.mu.Lock()
	defer c.mu.Unlock()
	monotonic, wall := c.read()
	known, ahead := c.known.Load(), wall-monotonic
	switch {
	case ahead > known.ahead+jitter:
		known = &lead{ahead: ahead, missed: known.missed + ahead - known.ahead}
	case ahead < known.ahead:
		known = &lead{ahead: ahead, missed: known.missed}
	}
	c.known.Store(known)
	return known
}

// after returns base + span, or the largest duration if that overflows.
func after(base, span time.Duration) time.Duration {
	if span > math.MaxInt64-base {
		return math.MaxInt64
	}
	return base + span
}

// pause sleeps; it reports false if ctx or the manager ended first.
func pause(ctx context.Context, closed <-chan struct{}, span time.Duration) bool {
	timer := time.NewTimer(span)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-closed:
	}
	return false
}
