// Package locktest is an in-memory lock server for an application's tests. The code under test cannot tell its
// [serverlock.Locks] from those in production: they have the same engine, over in-memory connections.
//
//	server := locktest.NewServer()
//	locks := server.Locks()
//	defer locks.Close()
//	held, err := locks.Lock("report", 30*time.Second).Acquire(ctx)
//	server.Lose(held) // what does the code do now?
//
// Time stands still until the test moves the server's [Clock]. An attempt that waits really blocks its goroutine until
// a release, or [Clock.Advance], ends its wait. Only the deadlines of contexts are real time.
//
// The server keeps the rules of the redis-lock module: the queue, shared and limited locks, several keys, sessions,
// fencing tokens, Recover, Once, SingleFlight and leaders. It does not detect deadlocks. Replicas, Fsync and
// Held.Fenced fail with [serverlock.ErrUnavailable].
package locktest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"example.com/serverlock"
	"example.com/serverlock/driver"
	"example.com/serverlock/internal/adapter"
)

// The settings of the module, with their defaults.
const (
	margin    = time.Second
	retention = time.Minute
	placeTime = 10 * time.Second
	claimTime = 2 * time.Second
)

// Server is an in-memory lock server. It is safe for concurrent use.
//
// Its methods return once every goroutine of the process is blocked: by then, the code under test has done everything
// that it does in response to the change. A goroutine that is busy for ten seconds is not waited for again.
type Server struct {
	// Clock is the clock of the server and of all its Locks.
	Clock *Clock

	mu        sync.Mutex
	locks     map[string]*lock
	attempts  map[string]*waiter       // by ID: those in a queue
	cancelled map[string]time.Duration // IDs, and when they were cancelled
	results   map[string]result        // by ID of the attempt
	refusals  map[string]driver.ReplyError
	channels  map[string]map[*conn]struct{}
	lastToken int64
	arrivals  int64
}

// NewServer returns a server without locks. Its time is midnight UTC on January 1st, 2000: a tick of every usual period
// of [serverlock.Locks.Once].
func NewServer() *Server {
	return &Server{
		Clock: newClock(), locks: map[string]*lock{}, attempts: map[string]*waiter{}, cancelled: map[string]time.Duration{},
		results:  map[string]result{},
		refusals: map[string]driver.ReplyError{}, channels: map[string]map[*conn]struct{}{},
	}
}

// Locks returns the Locks of a new process: those of one server share their locks, but nothing else.
func (s *Server) Locks(options ...serverlock.ManagerOption) *serverlock.Locks {
	// After an unknown command, the locks of this server must not continue with the script.
	options = append(slices.Clip(options), adapter.OnClock(ticking{s.Clock}).(serverlock.ManagerOption), serverlock.WithoutScripts())
	return serverlock.New(&client{server: s}, options...)
}

// Expire ends the leases of all holders of the key, on the server. The next waiter gets the lock. As in production, a
// holder finds out from Verify, Extend or Release, or when it next renews the lease: within a third of it.
func (s *Server) Expire(key string) {
	s.change(func() {
		l := s.lock(key)
		for _, one := range l.holders {
			if !one.isPending {
				one.until = min(one.until, s.now())
			}
		}
		s.serve(l)
	})
}

// Lose makes a hold lost: its contexts are cancelled, [serverlock.OnLost] is called, and the next waiter gets the lock.
func (s *Server) Lose(held *serverlock.Held) {
	keys, token := adapter.Lose(held)
	s.change(func() {
		for _, key := range keys {
			s.release(key, token)
		}
	})
}

// Refuse makes attempts for the key fail with an error of this kind, until [Server.Allow]: [serverlock.ErrUnavailable],
// [serverlock.ErrDenied], [serverlock.ErrDeadlock] or [serverlock.ErrArgument]. It panics for any other kind. Attempts
// that are waiting fail too. Holders keep the lock and can release it, but cannot extend it, so it ends with its lease.
func (s *Server) Refuse(key string, kind error) {
	reply, ok := replies[kind]
	if !ok {
		panic(fmt.Sprintf("locktest: a server does not refuse a lock with %q", kind))
	}
	s.change(func() {
		s.refusals[key] = reply
		for _, w := range s.attempts {
			if w.isWaiting && s.refusal(w.keys) != nil {
				s.turnAway(w)
			}
		}
	})
}

// None of these is retried.
var replies = map[error]driver.ReplyError{
	serverlock.ErrUnavailable: "CLOCK the test refuses this key",
	serverlock.ErrDenied:      "NOPERM the test refuses this key",
	serverlock.ErrDeadlock:    "DEADLOCK the test refuses this key",
	serverlock.ErrArgument:    "WRONGTYPE the test refuses this key",
}

// Allow ends [Server.Refuse].
func (s *Server) Allow(key string) {
	s.change(func() { delete(s.refusals, key) })
}

// Info is what the server knows about a lock.
type Info struct {
	State   string // free, held or expired
	Token   int64  // of the holder whose lease ends last; 0 if the lock is free
	Owner   string
	Waiters int
}

// Info returns the state of a lock. A waiting attempt has joined the queue once it is counted in Waiters.
func (s *Server) Info(key string) (info Info) {
	s.change(func() { info = s.lock(key).info(s.now()) })
	return info
}

// change makes a change when the goroutines are blocked, and returns once they are blocked again.
func (s *Server) change(make func()) {
	settle()
	s.mu.Lock()
	make()
	s.mu.Unlock()
	settle()
}

func (s *Server) now() time.Duration { return s.Clock.read() }
