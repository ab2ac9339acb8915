package serverlock

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"example.com/serverlock/driver"
)

// Locks provides one client's locks. Create one Locks for each Redis client in the application, and keep it. Two Locks
// do not see each other's scopes: a caller that acquires the same lock through both waits for itself.
type Locks struct {
	engine *engine
}

// New creates the Locks for a client, which comes from package goredis or redigo.
func New(client driver.Client, options ...ManagerOption) *Locks {
	s := &managerSettings{timeout: 5 * time.Second, clock: leaseClock, isPortable: true}
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

// Lock describes a lock with one holder at a time.
func (l *Locks) Lock(key string, lease time.Duration, options ...Option) *Lock {
	return l.newLock([]string{key}, lease, one, nil, options)
}

// Shared describes a lock that any number of holders share (readers); a holder of Lock (a writer) excludes them.
func (l *Locks) Shared(key string, lease time.Duration, options ...Option) *Lock {
	return l.newLock([]string{key}, lease, one, []any{"SHARED"}, options)
}

// Limit describes a lock with at most n holders at a time.
func (l *Locks) Limit(key string, n int, lease time.Duration, options ...Option) *Lock {
	return l.newLock([]string{key}, lease, one, []any{"LIMIT", int64(n)}, options)
}

// AllOf acquires all of the keys or none, under one token. It holds none of them while it waits. In a cluster, the
// keys must be in one slot. Without the module it polls, and gets no key that others are waiting for.
func (l *Locks) AllOf(keys []string, lease time.Duration, options ...Option) *Lock {
	return l.newLock(append([]string(nil), keys...), lease, many, nil, options)
}

// Session returns an object whose locks all belong to one caller: they have [Session], and share a connection, so the
// server finds deadlocks even where the locks are held without a scope. It needs no closing: the connection closes with
// its last lock.
func (l *Locks) Session() *SessionLocks { return &SessionLocks{locks: l} }

// Once describes a body that runs once for each tick, in one of the processes that call it. It is for cron jobs and
// schedulers.
//
// Ticks begin at multiples of the period, which is at least 10 seconds, counted from the beginning of 1970 on the
// server's clock. A call is for the nearest tick. The tick ends half a period after it begins, and nobody else runs
// it until then.
func (l *Locks) Once(key string, period time.Duration, options ...OnceOption) *Once {
	return newOnce(l.engine, key, period, options)
}

// SingleFlight describes a value that many callers, in any process, need at the same moment, such as a cache entry that
// has expired: one of them computes it, and all that wait for it get the same bytes.
//
// If the process that computes dies, the next one computes as soon as the lease has expired. The options are [Wait] (at
// least 1 ms; the default is 60 seconds), [Owner], [NoOwner], [MaxHold] and [OnLost]. With any other option, Do fails
// with [ErrArgument].
func (l *Locks) SingleFlight(key string, lease time.Duration, options ...Option) *SingleFlight {
	return newSingleFlight(l.engine, key, lease, options)
}

// Recover acquires a lock only if its last holder never released it; [Held.Predecessor] names that holder. It does not
// wait.
func (l *Locks) Recover(key string, lease time.Duration, options ...Option) *Lock {
	return l.newLock([]string{key}, lease, recovery, nil, options)
}

func (l *Locks) newLock(keys []string, lease time.Duration, form form, kind []any, options []Option) *Lock {
	return &Lock{engine: l.engine, request: newRequest(keys, lease, form, kind, options)}
}

// Close closes the dedicated connections. After that, held locks are no longer renewed, and attempts fail with
// [ErrMisuse]. The client stays open.
func (l *Locks) Close() { l.engine.close() }

// SessionLocks describes session locks of one caller, for example a goroutine: see [Locks.Session].
type SessionLocks struct {
	locks *Locks
	own   []*session // guarded by the mutex of sessions
}

// Lock does what [Locks.Lock] does, in this session.
func (s *SessionLocks) Lock(key string, lease time.Duration, options ...Option) *Lock {
	return s.locks.Lock(key, lease, s.among(options)...)
}

// Shared does what [Locks.Shared] does, in this session.
func (s *SessionLocks) Shared(key string, lease time.Duration, options ...Option) *Lock {
	return s.locks.Shared(key, lease, s.among(options)...)
}

// Limit does what [Locks.Limit] does, in this session.
func (s *SessionLocks) Limit(key string, n int, lease time.Duration, options ...Option) *Lock {
	return s.locks.Limit(key, n, lease, s.among(options)...)
}

// AllOf does what [Locks.AllOf] does, in this session.
func (s *SessionLocks) AllOf(keys []string, lease time.Duration, options ...Option) *Lock {
	return s.locks.AllOf(keys, lease, s.among(options)...)
}

// Recover does what [Locks.Recover] does, in this session.
func (s *SessionLocks) Recover(key string, lease time.Duration, options ...Option) *Lock {
	return s.locks.Recover(key, lease, s.among(options)...)
}

// among adds this session to a lock's options.
func (s *SessionLocks) among(options []Option) []Option {
	return append(slices.Clip(options), func(lock *settings) { lock.session, lock.group = true, s })
}

// Lock describes a lock: it holds nothing, and is safe for concurrent use. Each acquisition returns its own [Held],
// unless the lock is [Reentrant].
type Lock struct {
	engine  *engine
	request *request
}

// Acquire acquires the lock within [Wait]. If ctx is done first, the attempt is withdrawn and leaves nothing behind;
// the error is ctx's. (If the server stops answering at that moment, this takes as long as one call's time-out.) A
// held lock does not depend on ctx.
//
// The caller must call [Held.Release].
func (l *Lock) Acquire(ctx context.Context) (*Held, error) {
	return l.engine.acquire(ctx, l.request)
}

// Do runs work while the lock is held. The context passed to work is cancelled when the lock is lost, with that error
// as its cause; [FromContext] returns the [Held]. Do returns the error from work. If there is none, or the loss stopped
// the work, it returns the error of kind [ErrLost].
//
// Requesting the same lock with the context passed to work is an error of kind [ErrMisuse]. If it is [Reentrant], work
// gets the same Held instead, and the end of the outermost Do releases the lock.
func (l *Lock) Do(ctx context.Context, work func(ctx context.Context) error) error {
	held, err := l.engine.admit(ctx, l.request)
	if err != nil {
		return err
	}
	if held != nil {
		return held.doAgain(ctx, work)
	}
	if held, err = l.engine.acquireNew(ctx, l.request, l.engine.now()); err != nil {
		return err
	}
	return held.do(ctx, work, held.leave)
}
