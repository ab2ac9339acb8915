package serverlock_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"example.com/serverlock"
	"example.com/serverlock/internal/adapter"
	"example.com/serverlock/locktest"
)

// Callers of single flights on an in-memory server. Its Info returns once each of them waits, computes or has ended.

const flightLease = 30 * time.Second

type outcome struct {
	value []byte
	err   error
}

// pending is a call that has begun.
type pending chan outcome

type compute = func(ctx context.Context) ([]byte, error)

func computes(value string) compute {
	return func(context.Context) ([]byte, error) { return []byte(value), nil }
}

// flightTest is an in-memory server and a process that asks for its report.
type flightTest struct {
	*testing.T
	server *locktest.Server
	locks  *serverlock.Locks
	opened []*serverlock.Locks
	hooked chan string
}

func newFlightTest(t *testing.T) *flightTest {
	f := &flightTest{T: t, server: locktest.NewServer(), hooked: make(chan string, 100)}
	f.locks = f.process()
	return f
}

func (f *flightTest) process() *serverlock.Locks {
	hook := func(name string) { f.hooked <- name }
	locks := f.server.Locks(
		serverlock.WithLogger(slog.New(slog.DiscardHandler)),
		serverlock.WithHooks(serverlock.Hooks{
			Granted:  func(string, time.Duration) { hook("granted") },
			Refused:  func(string, time.Duration, error) { hook("refused") },
			Released: func(string, time.Duration, bool) { hook("released") },
		}))
	f.opened = append(f.opened, locks)
	f.Cleanup(locks.Close)
	return locks
}

// ask begins a call, and returns once it waits, computes or has ended.
func (f *flightTest) ask(ctx context.Context, locks *serverlock.Locks, compute compute, options ...serverlock.Option) pending {
	done := make(pending, 1)
	go func() {
		value, err := locks.SingleFlight("report", flightLease, options...).Do(ctx, compute)
		done <- outcome{value, err}
	}()
	f.server.Info("report")
	return done
}

// leads begins a call that computes, now or later, until the test closes the channel.
func (f *flightTest) leads(locks *serverlock.Locks, value string, err error) (pending, chan struct{}) {
	end := make(chan struct{})
	return f.ask(background, locks, func(ctx context.Context) ([]byte, error) {
		<-end
		return []byte(value), err
	}), end
}

func (f *flightTest) never(context.Context) ([]byte, error) {
	f.Error("it computes")
	return nil, nil
}

func (f *flightTest) wants(call pending, want string) {
	f.Helper()
	if got := <-call; got.err != nil || string(got.value) != want {
		f.Errorf("it got %q, %v, not %q", got.value, got.err, want)
	}
}

func (f *flightTest) fails(call pending, kind error) {
	f.Helper()
	mustBe(f.T, (<-call).err, kind)
}

func (f *flightTest) waiting(want int) {
	f.Helper()
	if waiting := f.server.Info("report").Waiters; waiting != want {
		f.Errorf("%d attempts wait, not %d", waiting, want)
	}
}

func (f *flightTest) leavesNothing() {
	f.Helper()
	if info := f.server.Info("report"); info != (locktest.Info{State: "free"}) {
		f.Errorf("the lock is %v", info)
	}
	for _, locks := range f.opened {
		for name, count := range adapter.Census(locks) {
			if count > 0 && name != "idle" {
				f.Errorf("%s: %d are left", name, count)
			}
		}
	}
}
