package serverlock

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"
)

// flights are the callers of one manager that want the value of one key. They share one attempt: the caller that has
// waited longest leads, which means that it has the attempt and computes, and the others wait for its value. If the
// leader leaves without a value, the next caller leads.
type flights struct {
	engine *engine
	mu     sync.Mutex
	byKey  map[string]*flight
}

// flight is the callers for one key, in order of arrival. The first one leads. It is over once it has landed.
type flight struct {
	callers []*caller
}

// caller is one call.
type caller struct {
	request *request
	began   time.Duration
	flight  *flight
	landed  chan landing // gets one landing at most
	hold    *hold        // in whose scope it computes; guarded by the mutex of flights
}

// landing is what a caller gets: the lead, the value or the error of the shared attempt.
type landing struct {
	leads bool
	value []byte
	err   error
}

func newFlights(e *engine) *flights { return &flights{engine: e, byKey: map[string]*flight{}} }

// join adds a caller. It returns an error if the caller is computing the value, and would wait for itself.
func (f *flights) join(ctx context.Context, r *request) (*caller, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	shared := f.byKey[r.key()]
	if shared == nil {
		shared = &flight{}
		f.byKey[r.key()] = shared
	} else if isWithin(ctx, shared.callers[0].hold) {
		return nil, failed(ErrMisuse, r.name, "this caller is computing its value")
	}
	c := &caller{request: r, began: f.engine.now(), flight: shared, landed: make(chan landing, 1)}
	shared.callers = append(shared.callers, c)
	if len(shared.callers) == 1 {
		c.landed <- landing{leads: true}
	}
	return c, nil
}

// isWithin reports whether the lock is held in a scope around a call, even if it has been lost since.
func isWithin(ctx context.Context, h *hold) bool {
	for around := scopeOf(ctx); around != nil; around = around.around {
		if around.held.hold == h {
			return true
		}
	}
	return false
}

// await returns once the caller leads, or has the value or an error.
func (f *flights) await(ctx context.Context, c *caller) landing {
	timer := f.engine.clock.NewTimer(c.request.wait)
	defer timer.Stop()
	select {
	case got := <-c.landed:
		got.value = bytes.Clone(got.value)
		return got
	case <-timer.C():
		return landing{err: timedOutError(c.request.name, f.engine.now()-c.began)}
	case <-ctx.Done():
		return landing{err: givenUp(ctx, c.request.name)}
	case <-f.engine.closed:
		return landing{err: closedError(c.request.name)}
	}
}

// computes notes that the leader computes in the scope of this lock.
func (f *flights) computes(leader *caller, h *hold) {
	f.mu.Lock()
	defer f.mu.Unlock()
	leader.hold = h
}

// land gives what the leader got to all others. Later callers begin a new flight.
func (f *flights) land(leader *caller, got landing) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.byKey, leader.request.key())
	for _, c := range leader.flight.callers[1:] {
		c.landed <- got
	}
	leader.flight.callers = nil
}

// leave ends a call. If it led a flight that has not landed, the next caller leads.
func (f *flights) leave(c *caller) {
	f.mu.Lock()
	defer f.mu.Unlock()
	shared := c.flight
	at := slices.Index(shared.callers, c)
	if at < 0 {
		return
	}
	shared.callers = slices.Delete(shared.callers, at, at+1)
	switch {
	case len(shared.callers) == 0:
		delete(f.byKey, c.request.key())
	case at == 0:
		shared.callers[0].landed <- landing{leads: true}
	}
}

func (f *flights) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	count := 0
	for _, shared := range f.byKey {
		count += len(shared.callers)
	}
	return count
}
