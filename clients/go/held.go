package serverlock

import (
	"context"
	"errors"
	"runtime"
	"time"
)

// Predecessor is a holder that never released the lock: its work may be half done.
type Predecessor struct {
	Overdue time.Duration
	Token   int64
	Owner   string
}

// Held represents a lock until it is released or lost. Its methods are safe for concurrent use. Once
// it is garbage collected, the lock is no longer renewed.
type Held struct {
	hold *hold
}

func newHeld(h *hold) *Held {
	held := &Held{hold: h}
	runtime.AddCleanup(held, (*hold).drop, h)
	return held
}

// Key returns the key, quoted; several keys are separated by commas.
func (h *Held) Key() string { return h.hold.request.name }

// Token returns the fencing token. It grows with each grant of the key: pass it to the storage you write to.
func (h *Held) Token() int64 { return h.hold.token }

// Predecessor returns the previous holder if it never released the lock. It is set only with [Details] or Recover.
func (h *Held) Predecessor() *Predecessor { return h.hold.predecessor }

// Waited returns how long it took to acquire the lock.
func (h *Held) Waited() time.Duration { return h.hold.granted - h.hold.began }

// Left returns how long the lock is certain to stay held if no renewal succeeds; 0 if it was lost or released.
func (h *Held) Left() time.Duration {
	defer runtime.KeepAlive(h)
	return h.hold.left()
}

// Check returns an error of kind [ErrLost] unless the lock is certain to be held. Check sends nothing: call it before
// each step of the work.
func (h *Held) Check() error {
	defer runtime.KeepAlive(h)
	return h.hold.check()
}

// Done returns a channel that is closed when the lock is lost or released; [Held.Check] then returns the reason.
func (h *Held) Done() <-chan struct{} { return h.hold.ctx.Done() }

// Context returns a copy of parent for work under the lock. It is cancelled when the lock is lost or released, with
// that error as its cause. It carries the Held: see [FromContext].
func (h *Held) Context(parent context.Context) context.Context {
	ctx, _ := h.scope(parent)
	return ctx
}

// scope returns such a context, and a function that ends it before the lock is released.
func (h *Held) scope(parent context.Context) (scoped context.Context, end func(why error)) {
	ctx, cancel := context.WithCancelCause(parent)
	// The closure must not refer to h: it would keep the Held alive.
	over := h.hold.ctx
	stop := context.AfterFunc(over, func() { cancel(context.Cause(over)) })
	end = func(why error) {
		stop()
		cancel(why)
	}
	return context.WithValue(ctx, scopeKey{}, &scope{held: h, around: scopeOf(parent)}), end
}

// do runs work in a scope of the lock. If work returns no error, finish then ends the hold; otherwise the lock is
// released.
func (h *Held) do(ctx context.Context, work, finish func(ctx context.Context) error) error {
	scoped, end := h.scope(ctx)
	hasReturned := false
	defer func() {
		if !hasReturned { // work panicked
			_ = h.leave(ctx)
		}
	}()
	err := work(scoped)
	hasReturned = true
	end(releasedError(h.hold.request.name))
	if err != nil {
		_ = h.leave(ctx)
		return h.lossOr(ctx, err)
	}
	if err = finish(ctx); errors.Is(err, ErrMisuse) {
		return nil // work has released it
	}
	return err
}

// doAgain runs work in an inner scope of the lock. The outermost one ends the hold.
func (h *Held) doAgain(ctx context.Context, work func(ctx context.Context) error) error {
	scoped, end := h.scope(ctx)
	defer end(nil)
	if err := work(scoped); err != nil {
		return h.lossOr(ctx, err)
	}
	if lost := h.hold.lost(); lost != nil {
		return lost
	}
	return nil
}

// lossOr returns the loss if it stopped the work that returned err; otherwise err.
func (h *Held) lossOr(ctx context.Context, err error) error {
	lost := h.hold.lost()
	if lost == nil || !errors.Is(err, context.Canceled) {
		return err
	}
	if ctx.Err() != nil && context.Cause(ctx) != error(lost) { // the caller has given up
		return err
	}
	return lost
}

// FromContext returns the lock of the innermost [Lock.Do], [Once.Do] or [Held.Context] around ctx, or nil.
func FromContext(ctx context.Context) *Held {
	if around := scopeOf(ctx); around != nil {
		return around.held
	}
	return nil
}

// Release releases the lock. The error is nil if the lock was held to the end, of kind [ErrLost] if it was not, and of
// kind [ErrMisuse] if it had already been released.
//
// The command is sent even if ctx is done, and takes at most one call's time-out. If the server does not answer by
// then, the release continues in the background; at worst, the lock expires with its lease.
//
// With [Reentrant], each Acquire needs a Release. One that is not the last sends nothing, and returns what [Held.Check]
// returns.
func (h *Held) Release(ctx context.Context) error {
	defer runtime.KeepAlive(h)
	if h.hold.leaveAgain() {
		return h.hold.check()
	}
	return h.leave(ctx)
}

// leave releases the lock, even if it was acquired again.
func (h *Held) leave(ctx context.Context) error {
	defer runtime.KeepAlive(h)
	return h.hold.engine.release(context.WithoutCancel(ctx), h.hold)
}

// Extend sets a new lease, counted from now; 0 means the lock's own lease. Renewal does this automatically, with the
// lock's own lease.
func (h *Held) Extend(ctx context.Context, lease time.Duration) error {
	defer runtime.KeepAlive(h)
	return h.hold.engine.extend(ctx, h.hold, lease)
}

// Verify asks the server whether the lock is held. It returns the time left, or an error of kind [ErrLost].
func (h *Held) Verify(ctx context.Context) (time.Duration, error) {
	defer runtime.KeepAlive(h)
	return h.hold.engine.verify(ctx, h.hold)
}

// Fenced runs one command on the lock's server, but only if the lock is held there at that moment; if not, the error
// is of kind [ErrLost]. In a cluster the key must be in the lock's slot. The reply is as the library returns it.
func (h *Held) Fenced(ctx context.Context, command, key string, args ...any) (any, error) {
	defer runtime.KeepAlive(h)
	return h.hold.engine.fenced(ctx, h.hold, append([]any{command, key}, args...))
}

type scopeKey struct{}

// scope is a lock held around a call, and the scope around that one.
type scope struct {
	held   *Held
	around *scope
}

func scopeOf(ctx context.Context) *scope {
	found, _ := ctx.Value(scopeKey{}).(*scope)
	return found
}

// heldAgain returns the Held that the caller already has in a scope around this call, if it gets that one again;
// otherwise nil. It returns an error if the caller would wait for itself.
func (e *engine) heldAgain(ctx context.Context, r *request) (*Held, error) {
	for around := scopeOf(ctx); around != nil; around = around.around {
		hold := around.held.hold
		if hold.engine != e || !hold.request.sharesKey(r) || hold.check() != nil {
			continue
		}
		if r.reentrant && !hold.isUnshared && hold.request.isSameLock(r) {
			if ctx.Err() != nil {
				return nil, givenUp(ctx, r.name)
			}
			return around.held, nil
		}
		if hold.request.isExclusive() || r.isExclusive() {
			return nil, failed(ErrMisuse, r.name, "this caller already holds it, in a scope around this call")
		}
	}
	return nil, nil
}
