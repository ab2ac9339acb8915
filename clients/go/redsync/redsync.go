// Package redsync provides the interface of github.com/go-redsync/redsync/v4 on top of LOCK.*: waiters queue, and the
// value is a fencing token. Only the import and the call to [New] change:
//
//	rs := redsync.New(serverlock.New(goredis.New(client))) // was: redsync.New(goredis.NewPool(client))
//	mutex := rs.NewMutex("report", redsync.WithExpiry(30*time.Second))
//	err := mutex.Lock()
//
// As with redsync, a lock is not renewed: it expires unless [Mutex.Extend] is called. One server with its replicas
// replaces several. WithGenValueFunc is missing, because the server generates the value.
package redsync

import (
	"math"
	"math/rand/v2"
	"time"

	"example.com/serverlock"
	"example.com/serverlock/internal/adapter"
)

// Redsync creates mutexes.
type Redsync struct {
	locks *serverlock.Locks
}

// New returns a Redsync that uses one client's locks.
func New(locks *serverlock.Locks) *Redsync { return &Redsync{locks: locks} }

// NewMutex returns a mutex with this name, which is the key of its lock.
func (r *Redsync) NewMutex(name string, options ...Option) *Mutex {
	m := &Mutex{name: name, locks: r.locks, expiry: 8 * time.Second, tries: 32, driftFactor: 0.01}
	m.delayFunc = func(int) time.Duration {
		return 50*time.Millisecond + rand.N(200*time.Millisecond)
	}
	for _, option := range options {
		option.Apply(m)
	}
	return m
}

// An Option for a mutex.
type Option interface {
	Apply(*Mutex)
}

// OptionFunc is an [Option] that is a function.
type OptionFunc func(*Mutex)

// Apply calls the function.
func (f OptionFunc) Apply(mutex *Mutex) { f(mutex) }

// A DelayFunc returns how long redsync would wait before a try.
type DelayFunc func(tries int) time.Duration

// WithExpiry sets how long the lock is held. The default is 8 seconds.
func WithExpiry(expiry time.Duration) Option {
	return OptionFunc(func(m *Mutex) { m.expiry = expiry })
}

// WithTries sets how many times redsync would try. The default is 32. [Mutex.Lock] waits in the queue for the sum of
// the delays between that many tries; with one try it does not wait.
func WithTries(tries int) Option {
	return OptionFunc(func(m *Mutex) { m.tries = tries })
}

// WithRetryDelay sets how long redsync would wait between tries: see [WithTries].
func WithRetryDelay(delay time.Duration) Option {
	return WithRetryDelayFunc(func(int) time.Duration { return delay })
}

// WithRetryDelayFunc sets how long redsync would wait between tries: see [WithTries]. The default is 50 to 250 ms.
func WithRetryDelayFunc(delayFunc DelayFunc) Option {
	return OptionFunc(func(m *Mutex) { m.delayFunc = delayFunc })
}

// WithDriftFactor sets the fraction of the expiry that [Mutex.Until] subtracts. The default is 0.01.
func WithDriftFactor(factor float64) Option {
	return OptionFunc(func(m *Mutex) { m.driftFactor = factor })
}

// WithSetNXOnExtend lets [Mutex.Extend] acquire a lock that has expired, if nobody else has it.
func WithSetNXOnExtend() Option {
	return OptionFunc(func(m *Mutex) { m.takesOnExtend = true })
}

// WithValue creates a mutex that already holds the lock, with the value of another mutex from this package.
func WithValue(value string) Option {
	return OptionFunc(func(m *Mutex) { m.value = value })
}

// WithTimeoutFactor does nothing: [serverlock.Locks] sets a call's time-out.
func WithTimeoutFactor(float64) Option { return OptionFunc(func(*Mutex) {}) }

// WithFailFast does nothing: there is only one server.
func WithFailFast(bool) Option { return OptionFunc(func(*Mutex) {}) }

// WithShufflePools does nothing: there is only one server.
func WithShufflePools(bool) Option { return OptionFunc(func(*Mutex) {}) }

// Tries beyond this many are assumed to have similar delays.
const mostDelays = 1000

// wait returns how long redsync would keep trying.
func (m *Mutex) wait(tries int) time.Duration {
	asked := min(tries-1, mostDelays)
	if asked <= 0 {
		return 0
	}
	sum := 0.0
	for i := 1; i <= asked; i++ {
		sum += float64(max(0, m.delayFunc(i)))
	}
	sum *= float64(tries-1) / float64(asked)
	return time.Duration(min(sum, math.MaxInt64/2))
}

func timed() serverlock.Option { return adapter.Timed().(serverlock.Option) }

func adopted(locks *serverlock.Locks, name string, token int64, expiry time.Duration) (*serverlock.Held, error) {
	held, err := adapter.Adopt(locks, name, token, expiry)
	if err != nil {
		return nil, err
	}
	return held.(*serverlock.Held), nil
}
