package serverlock

import (
	"context"
	"log/slog"
	"math"
	"time"

	"example.com/serverlock/internal/clock"
)

// Forever is an endless wait.
const Forever = time.Duration(math.MaxInt64)

// An Option for one lock.
type Option func(*settings)

type settings struct {
	wait, atLeast, maxHold, within time.Duration
	session, details, fsync, owned bool
	reentrant                      bool
	timed                          bool // the lease is not renewed, and the lock counts as held until it ends
	owner                          string
	replicas                       int
	group                          *SessionLocks // its session locks share a connection
	onLost                         func(error)
}

// Wait makes attempts wait in the queue for at most this long. Without it, an attempt that finds the lock taken is
// refused at once.
func Wait(wait time.Duration) Option { return func(s *settings) { s.wait = wait } }

// Owner sets a label for humans, 1 to 128 visible ASCII characters. It does not identify the holder to the server. The
// default is host:pid of this process.
func Owner(owner string) Option {
	return func(s *settings) { s.owner, s.owned = owner, true }
}

// NoOwner sends no label. Use it for keys that classic clients share: they expect a pure number.
func NoOwner() Option { return func(s *settings) { s.owned = false } }

// Reentrant gives a caller that already holds this lock the same [Held] again. A caller is identified by its context:
// that of [Lock.Do] or [Held.Context]. Each [Lock.Acquire] needs a [Held.Release] of its own; the end of the outermost
// Do releases the lock.
func Reentrant() Option { return func(s *settings) { s.reentrant = true } }

// Session binds the lock to a connection outside the application's pool: the lock ends one second after the
// connection closes. Session locks held in the scopes around a call share a connection with the lock requested there,
// and the server finds deadlocks between such connections ([ErrDeadlock]); [Locks.Session] is for locks held without a
// scope. It needs the module.
func Session() Option { return func(s *settings) { s.session = true } }

// Details fills [Held.Predecessor].
func Details() Option { return func(s *settings) { s.details = true } }

// Replicas requires count replicas to have the grant within this time; otherwise the lock is released.
func Replicas(count int, within time.Duration) Option {
	return func(s *settings) { s.replicas, s.within = count, within }
}

// Fsync requires this server and as many replicas as [Replicas] demands to have the grant on disk within this time
// (WAITAOF, Redis 7.2 and later); otherwise the lock is released.
func Fsync(within time.Duration) Option {
	return func(s *settings) { s.fsync, s.within = true, max(within, s.within) }
}

// AtLeast keeps the lock from others for this long, however soon it is released.
func AtLeast(atLeast time.Duration) Option { return func(s *settings) { s.atLeast = atLeast } }

// MaxHold stops renewing the lease after this time.
func MaxHold(maxHold time.Duration) Option { return func(s *settings) { s.maxHold = maxHold } }

// OnLost sets a function that runs once, in its own goroutine, when the lock is lost. The lock's contexts are
// cancelled as well.
func OnLost(lost func(err error)) Option { return func(s *settings) { s.onLost = lost } }

// A OnceOption is an option of [Locks.Once]: [Lease], [Rerun], or one of the options [Owner], [NoOwner], [Replicas],
// [Fsync], [MaxHold] and [OnLost] of locks.
type OnceOption interface {
	applyOnce(s *onceSettings)
}

type onceSettings struct {
	lease  time.Duration
	reruns bool
	lock   []Option
}

type onceOption func(*onceSettings)

func (o onceOption) applyOnce(s *onceSettings) { o(s) }

func (o Option) applyOnce(s *onceSettings) { s.lock = append(s.lock, o) }

// Lease sets how soon another process may run a tick if the one that runs it dies. It is at most half of the period.
// The default is 10 seconds, or a quarter of the period if that is shorter.
func Lease(lease time.Duration) OnceOption {
	return onceOption(func(s *onceSettings) { s.lease = lease })
}

// Rerun sets whether a tick runs again if the process that runs it dies. The default is true. If it is false, the lock
// is not renewed, and the body may take nine tenths of what was left of the tick's time; [Lease] and [MaxHold] have no
// effect.
func Rerun(reruns bool) OnceOption {
	return onceOption(func(s *onceSettings) { s.reruns = reruns })
}

// Hooks are functions called with the key, and the time waited or held. They must not block. A nil hook is not called.
type Hooks struct {
	Granted  func(key string, waited time.Duration)
	Refused  func(key string, waited time.Duration, err error)
	Lost     func(key string, held time.Duration, err error)
	Released func(key string, held time.Duration, inTime bool)
	// Began is called by the goroutine that asks for a lock, with the context of the call, before anything is sent. The
	// [Watch] that it returns follows this attempt and its hold.
	Began func(ctx context.Context, keys []string) Watch
}

// A ManagerOption is an option for [New].
type ManagerOption func(*managerSettings)

type managerSettings struct {
	timeout    time.Duration
	clock      clock.Clock
	isPortable bool
	isSilent   bool
	hooks      Hooks
	log        *slog.Logger
}

// WithTimeout sets how long a reply may take. The default is 5 seconds.
func WithTimeout(timeout time.Duration) ManagerOption {
	return func(s *managerSettings) { s.timeout = timeout }
}

// WithHooks sets the functions to call when locks are granted, refused, lost and released.
func WithHooks(hooks Hooks) ManagerOption { return func(s *managerSettings) { s.hooks = hooks } }

// WithLogger sets the logger for warnings. The default is [slog.Default].
func WithLogger(log *slog.Logger) ManagerOption { return func(s *managerSettings) { s.log = log } }

// WarnWithoutModule sets whether one warning is logged if the module is missing. The default is true.
func WarnWithoutModule(warns bool) ManagerOption {
	return func(s *managerSettings) { s.isSilent = !warns }
}

// WithoutScripts makes attempts fail with [ErrUnavailable] if the module is not loaded.
func WithoutScripts() ManagerOption { return func(s *managerSettings) { s.isPortable = false } }
