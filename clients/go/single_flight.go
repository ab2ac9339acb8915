package serverlock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	flightWait      = time.Minute
	leastFlightWait = time.Millisecond
)

// SingleFlight describes a value that many callers need at the same moment. It holds nothing, and is safe for
// concurrent use.
type SingleFlight struct {
	engine  *engine
	request *request
}

func newSingleFlight(e *engine, key string, lease time.Duration, options []Option) *SingleFlight {
	r := newRequest([]string{key}, lease, one, nil, append([]Option{Wait(flightWait)}, options...))
	r.wantsResult = true
	if reason := faultOfFlight(r); r.err == nil && reason != "" {
		r.err = failed(ErrArgument, r.name, reason)
	}
	return &SingleFlight{engine: e, request: r}
}

// faultOfFlight names the first wrong option that only SingleFlight refuses.
func faultOfFlight(r *request) string {
	if r.wait < leastFlightWait {
		return fmt.Sprintf("wait is %v, less than %v", r.wait, leastFlightWait)
	}
	for _, option := range []struct {
		name  string
		isSet bool
	}{
		{"session", r.session}, {"details", r.details}, {"atLeast", r.atLeast != 0}, {"reentrant", r.reentrant},
		{"replicas", r.replicas != 0}, {"fsync", r.fsync},
	} {
		if option.isSet {
			return option.name + " is not an option of SingleFlight"
		}
	}
	return ""
}

// Do returns the value: what compute returns, or what another caller computes while this one waits. The callers of one
// [Locks] share one attempt, and each gets its own slice.
//
// The caller that is granted the lock runs compute while the lock is held and renewed. The context passed to compute,
// [FromContext] and a loss are as in [Lock.Do]. If compute returns no error, Do returns its value, even if the lock was
// lost in the meantime, and all callers that wait at that moment get the same bytes. The server does not keep the
// value: a later caller computes again, so compute should put the value into a cache before it returns.
//
// If compute returns an error, Do returns that error, and the next caller computes. A caller whose ctx is done gets
// that error, and a caller whose [Wait] ends before there is a value gets [ErrTimeout]; neither affects the others. Any
// other error of the shared attempt goes to all callers of this Locks.
//
// A value of more than 65,536 bytes (the setting lock.result-max) does not reach other processes, which compute their
// own. Without the module, the value is stored for one lease at a key beside the lock, such as report:result:{report}.
//
// Requesting the same value or lock with the context of compute is an error of kind [ErrMisuse].
func (f *SingleFlight) Do(ctx context.Context, compute func(ctx context.Context) ([]byte, error)) ([]byte, error) {
	e := f.engine
	if _, err := e.admit(ctx, f.request); err != nil {
		return nil, err
	}
	c, err := e.flights.join(ctx, f.request)
	if err != nil {
		return nil, err
	}
	defer e.flights.leave(c)
	if got := e.flights.await(ctx, c); !got.leads {
		return got.value, got.err
	}
	held, err := e.acquireNew(ctx, f.request, c.began)
	if end, ok := as[*resolved](err); ok {
		e.flights.land(c, landing{value: end.value})
		return bytes.Clone(end.value), nil
	}
	if err != nil {
		if !isOfOneCaller(err) {
			e.flights.land(c, landing{err: err})
		}
		return nil, err
	}
	return c.compute(ctx, held, compute)
}

// isOfOneCaller reports whether an attempt's error concerns only the caller that had the attempt.
func isOfOneCaller(err error) bool {
	return errors.Is(err, ErrTimeout) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// compute runs the leader's compute in the scope of its lock.
func (c *caller) compute(
	ctx context.Context, held *Held, compute func(ctx context.Context) ([]byte, error),
) (value []byte, err error) {
	h := held.hold
	e := h.engine
	h.isUnshared = true
	e.flights.computes(c, h)
	work := func(ctx context.Context) error {
		computed, err := compute(ctx)
		if err != nil {
			return err
		}
		value = computed
		// The caller may change its own slice while the release continues in the background.
		shared := append([]byte{}, computed...)
		h.setResult(shared)
		e.flights.land(c, landing{value: shared})
		return nil
	}
	release := func(ctx context.Context) error {
		err := held.leave(ctx)
		if err != nil && !errors.Is(err, ErrLost) && !errors.Is(err, ErrMisuse) {
			e.warn(fmt.Sprintf("the lock %s could not be released after its value was computed", c.request.name), "error", err)
		}
		return nil // a value does not need the lock
	}
	if err := held.do(ctx, work, release); err != nil {
		return nil, err
	}
	return value, nil
}
