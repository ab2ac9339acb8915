package redsync

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"example.com/serverlock"
)

// A Mutex is one lock. Its methods are safe for concurrent use, but it holds one grant at a time: give each caller
// that competes for the lock its own Mutex.
type Mutex struct {
	name          string
	locks         *serverlock.Locks
	expiry        time.Duration
	tries         int
	delayFunc     DelayFunc
	driftFactor   float64
	takesOnExtend bool

	mu    sync.Mutex
	held  *serverlock.Held
	value string
	until time.Time
}

// Name returns the key of the lock.
func (m *Mutex) Name() string { return m.name }

// Value returns the fencing token as text. It is empty before the first lock, unless [WithValue] set it.
func (m *Mutex) Value() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.value
}

// Until returns when the lock ends for its holder, by the local clock. It is zero before the first lock.
func (m *Mutex) Until() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.until
}

// TryLock acquires the lock if it is free, and does not wait.
func (m *Mutex) TryLock() error { return m.TryLockContext(context.Background()) }

// TryLockContext is TryLock with a context.
func (m *Mutex) TryLockContext(ctx context.Context) error { return m.lock(ctx, 1) }

// Lock acquires the lock, and waits in the queue for as long as [WithTries] allows.
func (m *Mutex) Lock() error { return m.LockContext(context.Background()) }

// LockContext is Lock with a context. If it is done first, the error is [ErrFailed].
func (m *Mutex) LockContext(ctx context.Context) error { return m.lock(ctx, m.tries) }

func (m *Mutex) lock(ctx context.Context, tries int) error {
	if tries < 1 {
		return ErrFailed
	}
	lock := m.locks.Lock(m.name, m.expiry, timed(), serverlock.NoOwner(), serverlock.Wait(m.wait(tries)))
	held, err := lock.Acquire(some(ctx))
	if err != nil {
		return translated(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held, m.value = held, strconv.FormatInt(held.Token(), 10)
	m.setUntil()
	return nil
}

// setUntil counts from the last grant or EXTEND. The caller holds mu.
func (m *Mutex) setUntil() {
	m.until = time.Now().Add(m.held.Left() - time.Duration(float64(m.expiry)*m.driftFactor))
}

// Unlock releases the lock. It reports whether the lock was held to the end; if not, the error is
// [ErrLockAlreadyExpired] or a [RedisError].
func (m *Mutex) Unlock() (bool, error) { return m.UnlockContext(context.Background()) }

// UnlockContext is Unlock with a context. The command is sent even if ctx is done.
func (m *Mutex) UnlockContext(ctx context.Context) (bool, error) {
	held, err := m.current()
	if err != nil {
		return false, err
	}
	err = held.Release(some(ctx))
	m.mu.Lock()
	if m.held == held {
		m.held = nil
	}
	m.mu.Unlock()
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, serverlock.ErrLost), errors.Is(err, serverlock.ErrMisuse):
		return false, ErrLockAlreadyExpired
	}
	return false, &RedisError{Err: err}
}

// Extend sets a new expiry, counted from now. If the lock is no longer held, the error is an [ErrTaken].
func (m *Mutex) Extend() (bool, error) { return m.ExtendContext(context.Background()) }

// ExtendContext is Extend with a context.
func (m *Mutex) ExtendContext(ctx context.Context) (bool, error) {
	held, err := m.current()
	if err == nil {
		err = held.Extend(some(ctx), m.expiry)
	}
	switch {
	case err == nil:
	case isOver(err) && m.takesOnExtend && m.Value() != "":
		err = m.TryLockContext(ctx)
		return err == nil, err
	case isOver(err):
		return false, taken()
	default:
		return false, translated(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held = held
	m.setUntil()
	if !time.Now().Before(m.until) {
		return false, ErrExtendFailed
	}
	return true, nil
}

// Valid asks the server whether the lock is held.
func (m *Mutex) Valid() (bool, error) { return m.ValidContext(context.Background()) }

// ValidContext is Valid with a context.
func (m *Mutex) ValidContext(ctx context.Context) (bool, error) {
	held, err := m.current()
	if err == nil {
		_, err = held.Verify(some(ctx))
	}
	switch {
	case err == nil:
		return true, nil
	case isOver(err):
		return false, nil
	}
	return false, translated(err)
}

// current returns the mutex's grant. If only its value is known, the grant may come from another process.
func (m *Mutex) current() (*serverlock.Held, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held != nil {
		return m.held, nil
	}
	token, err := strconv.ParseInt(m.value, 10, 64)
	if err != nil || token <= 0 {
		return nil, ErrLockAlreadyExpired // not a token
	}
	held, err := adopted(m.locks, m.name, token, m.expiry)
	if err != nil {
		return nil, &RedisError{Err: err}
	}
	return held, nil
}

func isOver(err error) bool {
	return errors.Is(err, serverlock.ErrLost) || errors.Is(err, ErrLockAlreadyExpired)
}

func isOfContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// some replaces a nil context, which redsync also accepts.
func some(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return ctx
}
