package locktest

import (
	"container/heap"
	"math"
	"sync"
	"time"

	"example.com/serverlock/internal/clock"
)

var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// Clock stands still until the test moves it. Leases, waits, renewals and pauses are measured by it.
type Clock struct {
	moving sync.Mutex

	mu     sync.Mutex
	passed time.Duration
	count  int64
	due    timers
}

func newClock() *Clock { return &Clock{} }

// Now returns the server's time.
func (c *Clock) Now() time.Time { return epoch.Add(c.read()) }

// Advance moves the clock. Everything that falls due in the meantime happens in chronological order: renewals, the ends
// of leases and of waits, and what the code under test does about them. Advance returns once every goroutine is
// blocked.
func (c *Clock) Advance(span time.Duration) {
	if span < 0 {
		panic("locktest: a clock cannot go backwards")
	}
	c.moving.Lock()
	defer c.moving.Unlock()
	settle()
	end := after(c.read(), span)
	for c.fireNext(end) {
		settle()
	}
}

// fireNext moves the clock to the next timer that is due by the end, and fires it. Without one, it moves the clock
// to the end and reports false.
func (c *Clock) fireNext(end time.Duration) bool {
	c.mu.Lock()
	if len(c.due) == 0 || c.due[0].at > end {
		c.passed = end
		c.mu.Unlock()
		return false
	}
	next := heap.Pop(&c.due).(*timer)
	c.passed = next.at
	c.mu.Unlock()
	next.fire()
	return true
}

func (c *Clock) read() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.passed
}

// at returns a timer that calls fire, which must not block.
func (c *Clock) at(span time.Duration, fire func()) *timer {
	t := &timer{clock: c, fire: fire, place: -1}
	t.Reset(span)
	return t
}

// after returns base + span, or the largest duration if that overflows.
func after(base, span time.Duration) time.Duration {
	if span > math.MaxInt64-base {
		return math.MaxInt64
	}
	return base + span
}

// ticking is a Clock as the engine sees it.
type ticking struct{ clock *Clock }

func (t ticking) Now() time.Duration { return t.clock.read() }

func (t ticking) NewTimer(span time.Duration) clock.Timer {
	fired := make(chan time.Time, 1)
	made := &timer{clock: t.clock, fired: fired, place: -1}
	made.fire = func() {
		select {
		case fired <- t.clock.Now():
		default:
		}
	}
	made.Reset(span)
	return made
}

func (t ticking) AfterFunc(span time.Duration, call func()) clock.Timer {
	return t.clock.at(span, func() { go call() })
}

type timer struct {
	clock *Clock
	fire  func()
	fired chan time.Time // nil for a function

	// The clock's mutex guards these.
	at     time.Duration
	number int64 // of two timers for the same time, the one that was set first fires first
	place  int   // -1 while it is not set
}

func (t *timer) C() <-chan time.Time { return t.fired }

func (t *timer) Reset(span time.Duration) bool {
	wasSet := t.Stop()
	if span <= 0 {
		t.fire()
		return wasSet
	}
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.clock.count++
	t.at, t.number = after(t.clock.passed, span), t.clock.count
	heap.Push(&t.clock.due, t)
	return wasSet
}

func (t *timer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	wasSet := t.place >= 0
	if wasSet {
		heap.Remove(&t.clock.due, t.place)
	}
	select {
	case <-t.fired:
	default:
	}
	return wasSet
}

// timers implements heap.Interface.
type timers []*timer

func (t timers) Len() int { return len(t) }
func (t timers) Less(i, j int) bool {
	return t[i].at < t[j].at || t[i].at == t[j].at && t[i].number < t[j].number
}
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].place, t[j].place = i, j
}
func (t *timers) Push(one any) {
	one.(*timer).place = len(*t)
	*t = append(*t, one.(*timer))
}
func (t *timers) Pop() any {
	last := (*t)[len(*t)-1]
	(*t)[len(*t)-1] = nil
	*t = (*t)[:len(*t)-1]
	last.place = -1
	return last
}
