package serverlock

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

var (
	start = time.Now()
	ticks = newClock(system)
)

// now is the time since the start of the process, suspends of the machine included.
func now() time.Duration { return ticks.now() }

// clock runs on while the machine is suspended. Go's monotonic clock stands still then, so the larger counts of what it and
// the wall clock say has passed. A step of the wall clock backwards lengthens no lease; one forwards ends leases early.
type clock struct {
	read  func() (monotonic, wall time.Duration)
	mu    sync.Mutex
	known atomic.Pointer[lead]
}

// lead is by how much the wall clock is ahead of the monotonic one, and the time that the latter has missed so far.
type lead struct {
	ahead, missed time.Duration
}

// Readings of the two clocks are not quite of the same moment.
const jitter = 10 * time.Millisecond

func newClock(read func() (monotonic, wall time.Duration)) *clock {
	c := &clock{read: read}
	monotonic, wall := read()
	c.known.Store(&lead{ahead: wall - monotonic})
	return c
}

func system() (monotonic, wall time.Duration) {
	read := time.Now()
	return read.Sub(start), read.Round(0).Sub(start.Round(0)) // Round takes the monotonic reading away
}

func (c *clock) now() time.Duration {
	monotonic, wall := c.read()
	known := c.known.Load()
	if ahead := wall - monotonic; ahead < known.ahead || ahead > known.ahead+jitter {
		known = c.learn()
	}
	return monotonic + known.missed
}

// learn reads again: the goroutine may have been interrupted between the two readings before.
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

// after is base + span, or the end of time.
func after(base, span time.Duration) time.Duration {
	if span > math.MaxInt64-base {
		return math.MaxInt64
	}
	return base + span
}

// pause waits; it reports whether the time is over, and not ctx or the manager.
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
