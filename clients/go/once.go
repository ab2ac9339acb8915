package serverlock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

const (
	// A long lease that ends earlier than it should by more than mostEarly, or later by more than mostLate, is
	// corrected.
	mostEarly = 2 * time.Millisecond
	mostLate  = 100 * time.Millisecond
	// A long lease is at least this long until the tick of its grant is known: that may be the next one.
	leastLong = time.Second
	// After this time two clocks may have drifted so far apart that the server's is read again when a body ends.
	drifts = 10 * time.Minute
)

// Outcome says what became of a call for a tick.
type Outcome string

const (
	// Ran: the body ran here.
	Ran Outcome = "ran"
	// Elsewhere: another process runs the tick, or has run it.
	Elsewhere Outcome = "elsewhere"
	// Recovered: the lease of a process that ran expired within this tick's time, perhaps in the middle of its work, and
	// the body ran here.
	Recovered Outcome = "recovered"
)

// Once describes a body that runs once per period in one of the processes that ask. It holds nothing, and is safe for
// concurrent use.
type Once struct {
	engine  *engine
	request *request
	period  time.Duration
	reruns  bool
	options []Option
}

func newOnce(e *engine, key string, period time.Duration, options []OnceOption) *Once {
	s := &onceSettings{lease: defaultLease(period), reruns: true}
	for _, option := range options {
		option.applyOnce(s)
	}
	o := &Once{engine: e, period: period, reruns: s.reruns, options: s.lock}
	asked := o.newRequest(key, s.lease)
	o.options = append(o.options, Details())
	o.request = o.newRequest(key, s.lease)
	if reason := o.fault(asked); reason != "" {
		o.request.err = failed(ErrArgument, asked.name, reason)
	}
	return o
}

func (o *Once) newRequest(key string, lease time.Duration) *request {
	return newRequest([]string{key}, lease, one, nil, o.options)
}

// fault names the first wrong argument that only Once refuses; asked has the caller's options.
func (o *Once) fault(asked *request) string {
	if o.period < leastPeriod {
		return fmt.Sprintf("period is %v, less than %v", o.period, leastPeriod)
	}
	if asked.err == nil && asked.lease > o.period/2 {
		return fmt.Sprintf("lease is %v, longer than half of the period", asked.lease)
	}
	for _, option := range []struct {
		name  string
		isSet bool
	}{
		{"wait", asked.wait != 0}, {"session", asked.session}, {"details", asked.details}, {"atLeast", asked.atLeast != 0},
		{"reentrant", asked.reentrant},
	} {
		if option.isSet {
			return option.name + " is not an option of Once"
		}
	}
	return ""
}

// Do calls body with its hold, unless another process is running the current tick, or has run it. A loss, and the
// context of body, are as in [Lock.Do].
//
// If body returns nil, nobody else runs this tick. The tick is kept from others even if ctx is done by then; anything
// that takes a long time is done in the background. If body returns an error or panics, another process may run this
// tick, and Do returns that error.
//
// The outcome is empty if there is an error. Requesting the same lock with the context of body is an error of kind
// [ErrMisuse].
func (o *Once) Do(ctx context.Context, body func(ctx context.Context, held *HeldOnce) error) (Outcome, error) {
	held, err := o.begin(ctx)
	if err != nil {
		return "", err
	}
	if held == nil {
		return Elsewhere, nil
	}
	err = held.do(ctx, func(ctx context.Context) error { return body(ctx, held) }, held.finish)
	switch {
	case err != nil:
		return "", err
	case held.run.isRecovery:
		return Recovered, nil
	}
	return Ran, nil
}

// begin starts running the current tick. It returns nil and no error if another process is running it, or has run it.
func (o *Once) begin(ctx context.Context) (*HeldOnce, error) {
	e, r := o.engine, o.request
	if _, err := e.admit(ctx, r); err != nil {
		return nil, err
	}
	clock, err := e.serverClock.read(ctx, r)
	if err != nil {
		return nil, ofCaller(ctx, r.name, err)
	}
	if !o.reruns {
		r = o.longRequest(clock)
	}
	held, err := e.acquire(ctx, r)
	if errors.Is(err, ErrRefused) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	once, err := o.held(ctx, held, clock)
	if err != nil {
		e.giveUp(held.hold)
		return nil, ofCaller(ctx, r.name, err)
	}
	return once, nil
}

// longRequest requests a lease that lasts until the end of the window from the start.
func (o *Once) longRequest(clock estimate) *request {
	margin, _ := o.engine.serverClock.knownMargin()
	run := tickRun{
		tick: tickAt(o.engine.now()+clock.offset, o.period), period: o.period, clock: clock, margin: margin,
	}
	long := *o
	long.options = append(o.options[:len(o.options):len(o.options)], MaxHold(1)) // it is never renewed
	return long.newRequest(o.request.key(), max(leastLong, run.leaseEnds()-o.engine.now()))
}

// held determines the tick of a grant. It returns an error if the body must not begin.
func (o *Once) held(ctx context.Context, held *Held, clock estimate) (*HeldOnce, error) {
	e, h := o.engine, held.hold
	margin := time.Duration(portableMargin) * time.Millisecond
	if !h.portable() {
		var err error
		if margin, err = e.serverClock.readMargin(ctx, h.request); err != nil {
			return nil, err
		}
	}
	// The server granted it between two moments. If a kept lease had to end first, its window has ended by the later.
	tick := tickAt(h.granted+clock.offset, o.period)
	granted := h.requested + clock.offset - clock.doubt
	run := tickRun{
		tick: tick, period: o.period, clock: clock, margin: margin, isLong: !o.reruns,
		isRecovery: h.predecessor != nil && isRecovery(granted-h.predecessor.Overdue, tick, o.period),
	}
	if run.isLong {
		if err := e.correct(ctx, h, &run); err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, givenUp(ctx, h.request.name)
	}
	h.isUnshared = true
	return &HeldOnce{Held: held, run: run}, nil
}

// correct sets the end of a long lease again if it is off, because of the tick or the margin, or because the server may
// have counted it from too late a moment.
func (e *engine) correct(ctx context.Context, h *hold, run *tickRun) error {
	took := h.granted - h.requested
	for range 3 {
		h.mu.Lock()
		late := h.sent + h.lease - run.leaseEnds()
		h.mu.Unlock()
		if late >= -mostEarly && late <= mostLate && took <= lateExtend {
			break
		}
		sent := e.now()
		if err := e.extend(ctx, h, max(time.Millisecond, run.leaseEnds()-sent)); err != nil {
			return err
		}
		took = e.now() - sent
	}
	return nil
}

// tickRun is the tick that a hold runs.
type tickRun struct {
	tick       int64
	period     time.Duration
	clock      estimate
	margin     time.Duration
	isRecovery bool
	isLong     bool // from the start, the lease lasts until the end of the window
}

// leaseEnds returns when the lease has to end, by the local clock, so that the server lets others in at the end of the
// window. If the estimate of the server's clock is wrong, others may get in a little later, but not earlier.
func (r *tickRun) leaseEnds() time.Duration {
	return windowEnds(r.tick, r.period) + min(r.clock.doubt, mostDoubt) - r.clock.offset - r.margin
}

// HeldOnce is the held lock of one tick.
type HeldOnce struct {
	*Held
	run tickRun
}

// Tick returns the number of the tick: how many periods after the beginning of 1970 it begins, by the server's clock.
func (h *HeldOnce) Tick() int64 { return h.run.tick }

// Recovered reports whether the lease of a process that ran expired within this tick's time: its work may be half done.
func (h *HeldOnce) Recovered() bool { return h.run.isRecovery }

// finish ends the hold of a body that has succeeded, so that nobody else runs its tick. If ctx is done first, that
// continues in the background.
func (h *HeldOnce) finish(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- h.keep() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	timer := h.hold.engine.clock.NewTimer(farewell)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C():
		return nil
	}
}

func (h *HeldOnce) keep() error {
	defer runtime.KeepAlive(h.Held)
	e, run := h.hold.engine, h.run
	if h.Check() == nil && !run.isLong && (e.now() > run.clock.asked+drifts || !run.clock.isGood()) {
		if clock, err := e.serverClock.read(context.Background(), h.hold.request); err == nil {
			run.clock = clock
		}
	}
	return e.keep(h.hold, run.leaseEnds(), run.isLong)
}
