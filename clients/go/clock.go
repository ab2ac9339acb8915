package serverlock

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"example.com/serverlock/internal/clock"
)

var (
	start      = time.Now()
	leaseClock = newClock(system)
)

// Timers stop while the machine is suspended, so none that runs a function sleeps longer than this.
const longestSleep = time.Second

// systemClock counts from the start of the process, and keeps running while the machine is suspended. Go's monotonic
// clock does not, so it counts the larger of the times that have passed on that clock and on the wall clock. Setting
// the wall clock back never lengthens a lease; setting it forward ends leases early.
type systemClock struct {
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

func newClock(read func() (monotonic, wall time.Duration)) *systemClock {
	c := &systemClock{read: read}
	monotonic, wall := read()
	c.known.Store(&lead{ahead: wall - monotonic})
	return c
}

func system() (monotonic, wall time.Duration) {
	read := time.Now()
	return read.Sub(start), read.Round(0).Sub(start.Round(0)) // Round strips the monotonic reading
}

func (c *systemClock) Now() time.Duration {
	monotonic, wall := c.read()
	known := c.known.Load()
	if ahead := wall - monotonic; ahead < known.ahead || ahead > known.ahead+jitter {
		known = c.learn()
	}
	return monotonic + known.missed
}

// learn reads both clocks again: the goroutine may have been preempted between the first two readings.
func (c *systemClock) learn() *lead {
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

func (c *systemClock) NewTimer(span time.Duration) clock.Timer {
	return channelTimer{time.NewTimer(span)}
}

func (c *systemClock) AfterFunc(span time.Duration, call func()) clock.Timer {
	return funcTimer{time.AfterFunc(min(span, longestSleep), call)}
}

type channelTimer struct{ *time.Timer }

func (t channelTimer) C() <-chan time.Time { return t.Timer.C }

type funcTimer struct{ *time.Timer }

func (f funcTimer) C() <-chan time.Time { return nil }

func (f funcTimer) Reset(span time.Duration) bool { return f.Timer.Reset(min(span, longestSleep)) }

// after returns base + span, or the largest duration if that overflows.
func after(base, span time.Duration) time.Duration {
	if span > math.MaxInt64-base {
		return math.MaxInt64
	}
	return base + span
}

// pause sleeps until the span has passed, or ctx or the manager is done.
func (e *engine) pause(ctx context.Context, span time.Duration) {
	timer := e.clock.NewTimer(span)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	case <-e.closed:
	}
}

func (e *engine) sleep(span time.Duration) { <-e.clock.NewTimer(span).C() }
