package serverlock

import (
	"log/slog"
	"math"
	"time"
)

// Forever is a wait without an end.
const Forever = time.Duration(math.MaxInt64)

// An Option of one lock.
type Option func(*settings)

type settings struct {
	wait, atLeast, maxHold, within time.Duration
	session, details, fsync, owned bool
	timed                          bool // nothing renews the lease, and all of it counts
	owner                          string
	replicas                       int
	onLost                         func(error)
}

// Wait makes attempts stand in line for so long. Without it an attempt is refused at once.
func Wait(wait time.Duration) Option { return func(s *settings) { s.wait = wait } }

// Owner is a label for people, 1 to 128 visible ASCII characters. It grants nothing.
func Owner(owner string) Option {
	return func(s *settings) { s.owner, s.owned = owner, true }
}

// Session makes the lock end with a connection of its own, one second after it.
func Session() Option { return func(s *settings) { s.session = true } }

// Details fills [Held.Predecessor].
func Details() Option { return func(s *settings) { s.details = true } }

// Replicas demands that so many replicas have the grant within that time; else it is given back.
func Replicas(count int, within time.Duration) Option {
	return func(s *settings) { s.replicas, s.within = count, within }
}

// Fsync demands that this server, and as many others as [Replicas] says, have the grant on disk within that time (WAITAOF,
// from Redis 7.2); else it is given back.
func Fsync(within time.Duration) Option {
	return func(s *settings) { s.fsync, s.within = true, max(within, s.within) }
}

// AtLeast keeps the lock from others for that time, however soon it is released.
func AtLeast(atLeast time.Duration) Option { return func(s *settings) { s.atLeast = atLeast } }

// MaxHold ends the renewal of the lease after that time.
func MaxHold(maxHold time.Duration) Option { return func(s *settings) { s.maxHold = maxHold } }

// OnLost is called once, in a goroutine of its own, when the lock is lost. The contexts of the lock are cancelled as well.
func OnLost(lost func(err error)) Option { return func(s *settings) { s.onLost = lost } }

// Hooks are called with the key and the time that was waited, or for which the lock was held. They must not block. Those
// that are nil are left out.
type Hooks struct {
	Granted  func(key string, waited time.Duration)
	Refused  func(key string, waited time.Duration, err error)
	Lost     func(key string, held time.Duration, err error)
	Released func(key string, held time.Duration, inTime bool)
}

// A ManagerOption is an option of [New].
type ManagerOption func(*managerSettings)

type managerSettings struct {
	timeout    time.Duration
	isPortable bool
	isSilent   bool
	hooks      Hooks
	log        *slog.Logger
}

// WithTimeout sets how long one reply may take. The default is 5 seconds.
func WithTimeout(timeout time.Duration) ManagerOption {
	return func(s *managerSettings) { s.timeout = timeout }
}

// WithHooks sets what is called when locks are granted, refused, lost and released.
func WithHooks(hooks Hooks) ManagerOption { return func(s *managerSettings) { s.hooks = hooks } }

// WithLogger sets where warnings go. The default is [slog.Default], which hears nothing unless something is wrong.
func WithLogger(log *slog.Logger) ManagerOption { return func(s *managerSettings) { s.log = log } }

// WarnWithoutModule sets whether the log hears, once, that the module is not loaded. The default is true.
func WarnWithoutModule(warns bool) ManagerOption {
	return func(s *managerSettings) { s.isSilent = !warns }
}

// WithoutScripts makes attempts fail with [ErrUnavailable] where the module is not loaded.
func WithoutScripts() ManagerOption { return func(s *managerSettings) { s.isPortable = false } }
