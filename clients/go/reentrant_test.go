package serverlock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"example.com/serverlock/driver"
)

// exclusive grants each key to one holder at a time.
func exclusive() *scripted {
	held := map[any]bool{}
	return &scripted{reply: func(words []any) (any, error) {
		switch words[0] {
		case "LOCK.ACQUIRE":
			if held[words[1]] {
				return nil, nil
			}
			held[words[1]] = true
		case "LOCK.RELEASE":
			delete(held, words[1])
		}
		return int64(1), nil
	}}
}

func granting() *scripted {
	return &scripted{reply: func(words []any) (any, error) {
		if words[0] == "LOCK.MRELEASE" {
			return words[1], nil
		}
		return int64(1), nil
	}}
}

func TestAReentrantLockIsReleasedAsOftenAsItWasAcquired(t *testing.T) {
	server := granting()
	lock := opened(t, server).Lock("a", time.Minute, Reentrant())
	held, err := lock.Acquire(context.Background())
	mustNot(t, err)
	ctx := held.Context(context.Background())
	for range 2 {
		again, err := lock.Acquire(ctx)
		mustNot(t, err)
		if again != held {
			t.Error("it got a different Held")
		}
	}
	mustNot(t, lock.Do(ctx, func(ctx context.Context) error {
		if FromContext(ctx) != held {
			t.Error("the scope has a different Held")
		}
		return nil
	}))
	for range 2 {
		mustNot(t, held.Release(ctx))
		mustNot(t, held.Check())
	}
	if sent := len(server.words("LOCK.ACQUIRE")); sent != 1 || len(server.words("LOCK.RELEASE")) != 0 {
		t.Errorf("%d copies of ACQUIRE were sent", sent)
	}
	mustNot(t, held.Release(ctx))
	mustKind(t, held.Check(), ErrLost)
	mustKind(t, held.Release(ctx), ErrMisuse)
	if len(server.words("LOCK.RELEASE")) != 1 {
		t.Error("it was not released")
	}
	mustNot(t, lock.Do(context.WithoutCancel(ctx), func(ctx context.Context) error {
		if FromContext(ctx) == held {
			t.Error("the caller got a hold that has ended")
		}
		return nil
	}))
}

func TestTheOutermostScopeReleasesAReentrantLock(t *testing.T) {
	failure := errors.New("work")
	for _, outcome := range []error{nil, failure} {
		server := granting()
		lock := opened(t, server).Lock("a", time.Minute, Reentrant())
		var held *Held
		err := lock.Do(context.Background(), func(ctx context.Context) error {
			var err error
			held, err = lock.Acquire(ctx)
			mustNot(t, err)
			if err := lock.Do(ctx, func(context.Context) error { return failure }); err != failure {
				t.Errorf("the inner scope returned %v", err)
			}
			func() {
				defer func() { _ = recover() }()
				_ = lock.Do(ctx, func(context.Context) error { panic("work") })
			}()
			mustNot(t, FromContext(ctx).Check())
			if len(server.words("LOCK.RELEASE")) != 0 {
				t.Error("an inner scope released it")
			}
			return outcome
		})
		if err != outcome || len(server.words("LOCK.RELEASE")) != 1 {
			t.Errorf("the outermost scope returned %v", err)
		}
		mustKind(t, held.Release(context.Background()), ErrMisuse)
	}
}

func TestAnInnerScopeHasItsLockInItsContext(t *testing.T) {
	locks := opened(t, granting())
	outer, inner := locks.Lock("a", time.Minute, Reentrant()), locks.Lock("b", time.Minute)
	mustNot(t, outer.Do(context.Background(), func(ctx context.Context) error {
		held := FromContext(ctx)
		return inner.Do(ctx, func(ctx context.Context) error {
			var kept context.Context
			mustNot(t, outer.Do(ctx, func(ctx context.Context) error {
				if FromContext(ctx) != held {
					t.Error("the scope has a different lock")
				}
				kept = ctx
				return ctx.Err()
			}))
			if kept.Err() == nil || errors.Is(context.Cause(kept), ErrLost) {
				t.Errorf("the context of an inner scope ended with %v", context.Cause(kept))
			}
			return ctx.Err()
		})
	}))
}

func TestALossFailsTheScopesOfAReentrantLock(t *testing.T) {
	lost := map[string]bool{}
	server := &scripted{reply: func(words []any) (any, error) {
		if words[0] == "LOCK.EXTEND" && lost[words[1].(string)] {
			return int64(0), nil
		}
		return int64(1), nil
	}}
	lock := opened(t, server).Lock("a", 300*time.Millisecond, Reentrant())
	err := lock.Do(context.Background(), func(outer context.Context) error {
		wait := func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		given, giveUp := context.WithCancel(outer)
		giveUp()
		mustKind(t, lock.Do(given, wait), context.Canceled)
		_, err := lock.Acquire(given)
		mustKind(t, err, context.Canceled)
		server.mu.Lock()
		lost["a"] = true
		server.mu.Unlock()
		mustKind(t, lock.Do(outer, wait), ErrLost)
		return outer.Err()
	})
	mustKind(t, err, ErrLost)
}

func TestAReentrantLockIsTheSameIfItsKeysAndKindAre(t *testing.T) {
	locks := opened(t, granting())
	again := Reentrant()
	mustNot(t, locks.AllOf([]string{"a", "b"}, time.Minute).Do(context.Background(), func(ctx context.Context) error {
		held, err := locks.AllOf([]string{"b", "a"}, time.Minute, again).Acquire(ctx)
		mustNot(t, err)
		if held != FromContext(ctx) {
			t.Error("the order of the keys matters")
		}
		for _, other := range []*Lock{
			locks.Lock("a", time.Minute, again), locks.Shared("a", time.Minute, again), locks.Limit("a", 2, time.Minute, again),
			locks.AllOf([]string{"a", "b", "c"}, time.Minute, again), locks.AllOf([]string{"a", "b"}, time.Minute),
		} {
			_, err := other.Acquire(ctx)
			mustKind(t, err, ErrMisuse)
		}
		return nil
	}))
	mustNot(t, locks.Limit("pool", 2, time.Minute).Do(context.Background(), func(ctx context.Context) error {
		for n, isSame := range map[int]bool{2: true, 3: false} {
			held, err := locks.Limit("pool", n, time.Minute, again).Acquire(ctx)
			mustNot(t, err)
			if (held == FromContext(ctx)) != isSame {
				t.Errorf("with a limit of %d it is the same lock: %v", n, !isSame)
			}
		}
		_, err := locks.Lock("pool", time.Minute, again).Acquire(ctx)
		mustKind(t, err, ErrMisuse)
		return nil
	}))
}

func TestAReentrantLockIsNotSharedWithOtherCallersAndManagers(t *testing.T) {
	server := exclusive()
	locks, others := opened(t, server), opened(t, server)
	lock := locks.Lock("a", time.Minute, Reentrant())
	mustNot(t, lock.Do(context.Background(), func(ctx context.Context) error {
		_, err := lock.Acquire(context.Background())
		mustKind(t, err, ErrRefused)
		_, err = others.Lock("a", time.Minute, Reentrant()).Acquire(ctx)
		mustKind(t, err, ErrRefused)
		return nil
	}))
}

func TestALeaderStepsDownHoweverOftenItsLockWasAcquired(t *testing.T) {
	server := granting()
	locks := opened(t, server)
	ctx, stop := context.WithCancel(context.Background())
	mustNot(t, locks.Leader("a", time.Minute).Run(ctx, func(ctx context.Context, _ int64) {
		_, err := locks.Lock("a", time.Minute, Reentrant()).Acquire(ctx)
		mustNot(t, err)
		stop()
	}))
	if len(server.words("LOCK.RELEASE")) != 1 {
		t.Error("it still leads")
	}
}

func TestReentrantIsAnOptionOfLocksOnly(t *testing.T) {
	locks := opened(t, &scripted{reply: func([]any) (any, error) { return nil, driver.ReplyError("ERR it was sent") }})
	_, err := locks.Recover("a", time.Minute, Reentrant()).Acquire(context.Background())
	mustName(t, err)
	mustName(t, locks.Leader("a", time.Minute, Reentrant()).Run(context.Background(), nil))
	_, err = locks.Once("a", day, Reentrant()).Do(context.Background(), nothing)
	mustName(t, err)
}

func mustName(t *testing.T, err error) {
	t.Helper()
	mustKind(t, err, ErrArgument)
	if !strings.Contains(err.Error(), "reentrant is not an option of") {
		t.Error(err)
	}
}
