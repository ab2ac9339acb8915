package serverlock_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"example.com/serverlock"
	"example.com/serverlock/internal/adapter"
)

// Tests for what only Go has, on a real server. clients/suite tests what all languages share.

var background = context.Background()

func TestAPanicInTheWorkReleasesTheLock(t *testing.T) {
	locks, client := open(t, startServer(t))
	func() {
		defer func() {
			if recover() != "work" {
				t.Error("the panic did not propagate")
			}
		}()
		_ = locks.Lock("a", time.Minute).Do(background, func(context.Context) error { panic("work") })
	}()
	if !isFree(t, client, "a") {
		t.Error("the lock is held")
	}
}

func TestALossCancelsContextsWithItsCause(t *testing.T) {
	locks, client := open(t, startServer(t))
	losses := make(chan error, 2)
	lock := locks.Lock("a", 600*time.Millisecond, serverlock.OnLost(func(err error) { losses <- err }))
	held, err := lock.Acquire(background)
	must(t, err)
	parent, cancel := context.WithCancel(background)
	defer cancel()
	first, second := held.Context(parent), held.Context(background)
	if serverlock.FromContext(first) != held || serverlock.FromContext(background) != nil {
		t.Error("FromContext returns a different lock")
	}
	must(t, client.Del(background, "a").Err())
	for _, ctx := range []context.Context{first, second} {
		select {
		case <-ctx.Done():
			mustBe(t, context.Cause(ctx), serverlock.ErrLost)
		case <-time.After(10 * time.Second):
			t.Fatal("the context was not cancelled")
		}
	}
	<-held.Done()
	mustBe(t, <-losses, serverlock.ErrLost)
	mustBe(t, held.Check(), serverlock.ErrLost)
	mustBe(t, held.Release(background), serverlock.ErrLost)
	mustBe(t, held.Release(background), serverlock.ErrMisuse)
}

func TestWorkStoppedByALossReturnsTheLoss(t *testing.T) {
	locks, client := open(t, startServer(t))
	err := locks.Lock("a", 300*time.Millisecond).Do(background, func(ctx context.Context) error {
		must(t, client.Del(background, "a").Err())
		<-ctx.Done()
		return ctx.Err()
	})
	mustBe(t, err, serverlock.ErrLost)
	ctx, cancel := context.WithCancel(background)
	err = locks.Lock("a", time.Minute).Do(ctx, func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the caller's own cancellation became %v", err)
	}
}

func TestTheContextEndsWithTheWork(t *testing.T) {
	locks, _ := open(t, startServer(t))
	var kept context.Context
	must(t, locks.Lock("a", time.Minute).Do(background, func(ctx context.Context) error {
		kept = ctx
		return ctx.Err()
	}))
	mustBe(t, context.Cause(kept), serverlock.ErrLost)
}

func TestReleaseIsSentEvenIfTheContextIsDone(t *testing.T) {
	locks, client := open(t, startServer(t))
	ctx, cancel := context.WithCancel(background)
	held, err := locks.Lock("a", time.Minute).Acquire(ctx)
	must(t, err)
	cancel()
	must(t, held.Check())
	must(t, held.Release(ctx))
	if !isFree(t, client, "a") {
		t.Error("the lock is held")
	}
}

func TestAnAttemptEndsWithItsContext(t *testing.T) {
	locks, client := open(t, startServer(t))
	theirs, err := locks.Lock("a", time.Minute).Acquire(background)
	must(t, err)
	ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
	defer cancel()
	_, err = locks.Lock("a", time.Minute, serverlock.Wait(serverlock.Forever)).Acquire(ctx)
	mustBe(t, err, context.DeadlineExceeded)
	waiting := func(count int64) func() bool {
		return func() bool {
			info, err := client.Do(background, "LOCK.INFO", "a").Result()
			fields, _ := info.(map[any]any)
			return err == nil && fields["waiters"] == count
		}
	}
	until(t, "nobody waits", waiting(0))
	must(t, theirs.Release(background))
	if !isFree(t, client, "a") {
		t.Error("the attempt acquired the lock")
	}
	_, err = locks.Lock("a", time.Minute).Acquire(background)
	must(t, err)
	together, giveUp := context.WithCancel(background)
	ended := make(chan error)
	for range 2 { // these wait with NOTIFY
		go func() {
			_, err := locks.Lock("a", time.Minute, serverlock.Wait(time.Minute)).Acquire(together)
			ended <- err
		}()
	}
	until(t, "both wait", waiting(2))
	until(t, "both have their replies", func() bool { return adapter.Census(locks)["slots"] == 0 })
	giveUp()
	mustBe(t, <-ended, context.Canceled)
	mustBe(t, <-ended, context.Canceled)
	until(t, "nobody waits", waiting(0))
	stopped, stop := context.WithCancelCause(background)
	reason := errors.New("shutting down")
	stop(reason)
	_, err = locks.Lock("a", time.Minute).Acquire(stopped)
	mustBe(t, err, context.Canceled)
	mustBe(t, err, reason)
}

func TestScopesSeeTheLocksAroundThem(t *testing.T) {
	address := startServer(t)
	locks, _ := open(t, address)
	others, _ := open(t, address)
	inner := locks.AllOf([]string{"b", "a"}, time.Minute)
	err := locks.Lock("a", time.Minute).Do(background, func(ctx context.Context) error {
		_, err := inner.Acquire(ctx)
		mustBe(t, err, serverlock.ErrMisuse)
		_, err = inner.Acquire(background) // without the context, this is a different caller
		mustBe(t, err, serverlock.ErrRefused)
		_, err = others.Lock("a", time.Minute).Acquire(ctx)
		mustBe(t, err, serverlock.ErrRefused)
		must(t, serverlock.FromContext(ctx).Release(ctx))
		return inner.Do(context.WithoutCancel(ctx), func(context.Context) error { return nil })
	})
	must(t, err)
	shared := locks.Shared("s", time.Minute)
	must(t, shared.Do(background, func(ctx context.Context) error {
		return shared.Do(ctx, func(context.Context) error { return nil })
	}))
}

func TestCloseEndsWaitsAndGoroutines(t *testing.T) {
	address := startServer(t)
	before := runtime.NumGoroutine()
	locks, client := open(t, address)
	_, err := locks.Lock("a", time.Minute).Acquire(background)
	must(t, err)
	session, err := locks.Lock("s", time.Minute, serverlock.Session()).Acquire(background)
	must(t, err)
	ended := make(chan error)
	go func() {
		_, err := locks.Lock("a", time.Minute, serverlock.Wait(time.Hour)).Acquire(background)
		ended <- err
	}()
	until(t, "the attempt waits", func() bool {
		info, err := client.Do(background, "LOCK.INFO", "a").Result()
		fields, _ := info.(map[any]any)
		return err == nil && fields["waiters"] == int64(1)
	})
	locks.Close()
	locks.Close()
	mustBe(t, <-ended, serverlock.ErrMisuse)
	<-session.Done()
	_, err = locks.Lock("b", time.Minute).Acquire(background)
	mustBe(t, err, serverlock.ErrMisuse)
	must(t, client.Ping(background).Err())
	must(t, client.Close())
	until(t, "the goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
}

func TestTheOnlyWaiterBlocksUntilAnotherJoins(t *testing.T) {
	locks, client := open(t, startServer(t))
	other, err := locks.Lock("a", time.Minute).Acquire(background)
	must(t, err)
	ended := make(chan error)
	wait := func() {
		held, err := locks.Lock("a", time.Minute, serverlock.Wait(time.Minute)).Acquire(background)
		if err == nil {
			err = held.Release(background)
		}
		ended <- err
	}
	blocked := func(count string) func() bool {
		return func() bool {
			info, err := client.Info(background, "clients").Result()
			return err == nil && strings.Contains(info, "blocked_clients:"+count)
		}
	}
	go wait()
	until(t, "it blocks", blocked("1"))
	must(t, other.Release(background))
	must(t, <-ended)
	other, err = locks.Lock("a", time.Minute).Acquire(background)
	must(t, err)
	go wait()
	until(t, "it blocks again", blocked("1"))
	go wait()
	until(t, "nobody blocks", blocked("0"))
	must(t, other.Release(background))
	must(t, <-ended)
	must(t, <-ended)
	until(t, "there are four connections, one of them the test's own", func() bool {
		list, err := client.Do(background, "CLIENT", "LIST").Text()
		return err == nil && strings.Count(list, " addr=") <= 4
	})
}

func TestALeaderWithBadArgumentsReturnsAnError(t *testing.T) {
	locks, _ := open(t, startServer(t))
	err := locks.Leader("a", 0).Run(background, func(context.Context, int64) { t.Error("elected") })
	mustBe(t, err, serverlock.ErrArgument)
	for range locks.Leader("a", time.Second).Observe(background) {
		break
	}
}

func TestErrorsNameTheLockAndTheirKind(t *testing.T) {
	err := &serverlock.Error{Key: `"a"`, Kind: serverlock.ErrTimeout, Reason: "too late"}
	if err.Error() != `the lock "a": too late` || !errors.Is(err, serverlock.ErrRefused) || errors.Is(err, serverlock.ErrLost) {
		t.Error(err)
	}
	if !errors.Is(err, context.DeadlineExceeded) || !err.Timeout() {
		t.Error("the end of a wait is not a timeout")
	}
	for kind, code := range map[error]string{
		serverlock.ErrRefused: "refused", serverlock.ErrTimeout: "timeout", serverlock.ErrLost: "lost",
		serverlock.ErrDeadlock: "deadlock", serverlock.ErrUnavailable: "unavailable", serverlock.ErrDenied: "denied",
		serverlock.ErrNoServer: "no_server", serverlock.ErrArgument: "argument", serverlock.ErrMisuse: "misuse",
		context.Canceled: "cancelled", context.DeadlineExceeded: "cancelled", errors.New("another"): "unknown",
	} {
		err := &serverlock.Error{Kind: kind}
		if copied := *err; copied.Code() != code || !errors.Is(&copied, kind) {
			t.Errorf("the code of %v is %s", kind, copied.Code())
		}
		isTimeout := kind == serverlock.ErrTimeout || kind == context.DeadlineExceeded
		if err.Timeout() != isTimeout || errors.Is(err, context.DeadlineExceeded) != isTimeout {
			t.Errorf("%v is a time-out: %v", kind, !isTimeout)
		}
	}
	if text := (&serverlock.Error{Reason: "no key"}).Error(); !strings.HasPrefix(text, "serverlock: ") {
		t.Error(text)
	}
}
