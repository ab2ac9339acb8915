package serverlock

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// These tests can suspend the machine and set its wall clock.
var suspended, stepped atomic.Int64

func init() {
	leaseClock = newClock(func() (monotonic, wall time.Duration) {
		monotonic, wall = system()
		return monotonic, wall + time.Duration(suspended.Load()+stepped.Load())
	})
}

func now() time.Duration { return leaseClock.Now() }

func suspend(span time.Duration) { suspended.Add(int64(span)) }
func step(span time.Duration)    { stepped.Add(int64(span)) }

func TestTheClockCountsTheLargerOfMonotonicAndWallTime(t *testing.T) {
	var monotonic, wall time.Duration
	c := newClock(func() (time.Duration, time.Duration) { return monotonic, wall })
	const s = time.Second
	for _, one := range []struct {
		what                  string
		monotonic, wall, want time.Duration
	}{
		{"both run", 3 * s, 3 * s, 3 * s},
		{"a suspend", s, 60 * s, 60 * s},
		{"both run", 2 * s, 2 * s, 2 * s},
		{"a step backwards", s, -3600 * s, s},
		{"a suspend after a step backwards", 0, 30 * s, 30 * s},
		{"a step forwards", s, 100 * s, 100 * s},
		{"nothing", 0, 0, 0},
		{"an interrupted reading", 0, time.Millisecond, 0},
		{"its correction", s, s - time.Millisecond, s},
	} {
		before := c.Now()
		monotonic, wall = monotonic+one.monotonic, wall+one.wall
		if got := c.Now() - before; got != one.want {
			t.Errorf("%s: %v passed, not %v", one.what, got, one.want)
		}
	}
}

func TestManyReadersOfTheClockCountASuspendOnce(t *testing.T) {
	var mu sync.Mutex
	var monotonic, wall time.Duration
	c := newClock(func() (time.Duration, time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		monotonic, wall = monotonic+1, wall+1
		return monotonic, wall
	})
	var all sync.WaitGroup
	for number := range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			before := c.Now()
			for range 5000 {
				read := c.Now()
				if read < before {
					t.Errorf("the clock went back by %v", before-read)
					return
				}
				before = read
				if number == 0 && rand.N(50) == 0 {
					mu.Lock()
					wall += time.Second
					mu.Unlock()
				}
			}
		}()
	}
	all.Wait()
	wall += time.Second
	c.Now() // The call that finds a step reads the clocks twice, and returns the first reading.
	if read := c.Now(); read != wall {
		t.Errorf("the clock is at %v, the wall clock at %v", read, wall)
	}
}

func TestALeaseEndsDuringASuspend(t *testing.T) {
	locks := New(&flakyNode{}, WithLogger(slog.New(slog.DiscardHandler)))
	defer locks.Close()
	const lease = 10 * time.Minute
	held, err := locks.Lock("a", lease).Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	step(-time.Hour)
	if left := held.Left(); left > lease {
		t.Errorf("%v of the lease is left after the wall clock stepped back", left)
	}
	if err := held.Check(); err != nil {
		t.Error(err)
	}
	suspend(lease)
	mustKind(t, held.Check(), ErrLost)

	// Without a Check, the timer must notice the loss after the resume, long before a renewal would be due.
	held, err = locks.Lock("b", lease).Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	suspend(lease)
	select {
	case <-held.Done():
	case <-time.After(60 * time.Second):
		t.Fatal("the loss was not noticed")
	}
	mustKind(t, held.Check(), ErrLost)
}
