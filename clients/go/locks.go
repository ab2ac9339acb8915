package serverlock

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"example.com/serverlock/driver"
)

// Locks are the locks of one client: make one for each client of the application, and keep it. Two Locks do not know what
// the other holds: an acquisition within the scope of the other waits for itself.
type Locks struct {
	engine *engine
}

// New makes the Locks of a client, as the packages goredis and redigo give it.
func New(client driver.Client, options ...ManagerOption) *Locks {
	s := &managerSettings{timeout: 5 * time.Second, isPortable: true}
	for _, option := range options {
		option(s)
	}
	if s.timeout <= 0 {
		s.timeout = 5 * time.Second
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	return &Locks{engine: newEngine(client, s)}
}

// Lock has one holder at a time.
func (l *Locks) Lock(key string, lease time.Duration, options ...Option) *Lock {
	return l.made([]string{key}, lease, one, nil, options)
}

// Shared has any number of holders that share it (readers); none beside a holder of Lock (a writer).
func (l *Locks) Shared(key string, lease time.Duration, options ...Option) *Lock {
	return l.made([]string{key}, lease, one, []any{"SHARED"}, options)
}

// Limit has at most n holders at a time.
func (l *Locks) Limit(key string, n int, lease time.Duration, options ...Option) *Lock {
	return l.made([]string{key}, lease, one, []any{"LIMIT", int64(n)}, options)
}

// AllOf gets all of the keys or none, under one token. While it waits it holds none. In a cluster the keys have to be in
// one slot.
func (l *Locks) AllOf(keys []string, lease time.Duration, options ...Option) *Lock {
	return l.made(append([]string(nil), keys...), lease, many, nil, options)
}

// Recover gets only a lock that its last holder never released; [Held.Predecessor] says whose it was. It does not wait.
func (l *Locks) Recover(key string, lease time.Duration, options ...Option) *Lock {
	return l.made([]string{key}, lease, recovery, nil, options)
}

func (l *Locks) made(keys []string, lease time.Duration, form form, kind []any, options []Option) *Lock {
	return &Lock{engine: l.engine, request: newRequest(keys, lease, form, kind, options)}
}

// Close ends the connections of its own. Locks that are held are not renewed any more, and attempts fail with
// [ErrMisuse]. The client stays open.
func (l *Locks) Close() { l.engine.close() }

// Lock is a description of a lock: it holds nothing, and any number of goroutines may use it. Each gets a [Held] of its
// own.
type Lock struct {
	engine  *engine
	request *request
}

// Acquire gets the lock within [Wait]. If ctx is done first, the attempt is given up and leaves nothing behind; the error
// is that of ctx. (If it is cancelled just when the server stops answering, that takes the time-out of one call.) Once
// the lock is held, it does not depend on ctx.
//
// The caller has to call [Held.Release].
func (l *Lock) Acquire(ctx context.Context) (*Held, error) {
	return l.engine.acquire(ctx, l.request)
}

// Do runs the work while the lock is held. Its context is cancelled when the lock is lost, with that error as its cause;
// [FromContext] gives the [Held]. Do returns the error of the work. If the work has none, or was stopped by the loss, it
// returns the error of kind [ErrLost].
//
// To ask for the same lock with the context of the work is an error of kind [ErrMisuse].
func (l *Lock) Do(ctx context.Context, work func(ctx context.Context) error) error {
	held, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	scoped, end := held.scope(ctx)
	hasReturned := false
	defer func() {
		if !hasReturned { // a panic goes on
			_ = held.Release(ctx)
		}
	}()
	err = work(scoped)
	hasReturned = true
	end()
	lost := held.hold.lost()
	released := held.Release(ctx)
	if errors.Is(released, ErrMisuse) {
		released = nil // by the work
	}
	if err == nil {
		return released
	}
	if lost != nil && ctx.Err() == nil && errors.Is(err, context.Canceled) {
		return lost
	}
	return err
}
