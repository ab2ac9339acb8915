package locktest_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"example.com/serverlock"
	"example.com/serverlock/locktest"
)

// events are what watches were called with, in order.
type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) add(text string, values ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, fmt.Sprintf(text, values...))
}

func (e *events) hooks() serverlock.Hooks {
	return serverlock.Hooks{Began: func(_ context.Context, keys []string) serverlock.Watch {
		e.add("began %v", keys)
		return serverlock.Watch{
			Granted: func(command string, _ int64, _ time.Duration) { e.add("granted %s", command) },
			Failed: func(command string, _ time.Duration, err *serverlock.Error) {
				e.add("failed %s %s", command, err.Code())
			},
			Ended: func(end serverlock.End, _ time.Duration, err *serverlock.Error) {
				e.add("ended %s %v", end, err != nil)
			},
		}
	}}
}

func TestEachAttemptAndEachHoldEndsOnceForAWatch(t *testing.T) {
	server, seen, ctx := locktest.NewServer(), &events{}, context.Background()
	locks := server.Locks(serverlock.WithHooks(seen.hooks()))
	defer locks.Close()
	report := locks.Lock("report", 10*time.Second)
	held, _ := report.Acquire(ctx)
	_, _ = report.Acquire(ctx)
	_ = held.Release(ctx)
	_ = held.Release(ctx) // misuse
	_, _ = locks.Lock("report", 0).Acquire(ctx)
	lost, _ := report.Acquire(ctx)
	server.Lose(lost)
	_ = lost.Release(ctx)
	_, _ = locks.Recover("report", time.Second).Acquire(ctx)
	want := []string{
		"began [report]", "granted LOCK.ACQUIRE",
		"began [report]", "failed LOCK.ACQUIRE refused",
		"ended released false",
		"began [report]", "granted LOCK.ACQUIRE", "ended lost true",
		"began [report]", "failed LOCK.RECOVER refused",
	}
	if !slices.Equal(seen.all, want) {
		t.Errorf("the watches saw %q", seen.all)
	}
}

func TestATickThatCannotBeginEndsItsHoldForAWatch(t *testing.T) {
	server, seen := locktest.NewServer(), &events{}
	ctx, cancel := context.WithCancel(context.Background())
	hooks := seen.hooks()
	began := hooks.Began
	hooks.Began = func(ctx context.Context, keys []string) serverlock.Watch {
		watch := began(ctx, keys)
		granted := watch.Granted
		watch.Granted = func(command string, token int64, waited time.Duration) {
			granted(command, token, waited)
			cancel()
		}
		return watch
	}
	locks := server.Locks(serverlock.WithHooks(hooks))
	defer locks.Close()
	_, err := locks.Once("report", time.Hour).Do(ctx, func(context.Context, *serverlock.HeldOnce) error { return nil })
	want := []string{"began [report]", "granted LOCK.ACQUIRE", "ended released false"}
	if err == nil || !slices.Equal(seen.all, want) {
		t.Errorf("%v, and the watch saw %q", err, seen.all)
	}
}

func TestAWatchNeedsNoFunctions(t *testing.T) {
	server := locktest.NewServer()
	locks := server.Locks(serverlock.WithHooks(serverlock.Hooks{
		Began: func(context.Context, []string) serverlock.Watch { return serverlock.Watch{} },
	}))
	defer locks.Close()
	held, err := locks.Lock("report", time.Second).Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if _, err = locks.Lock("report", time.Second).Acquire(context.Background()); err == nil {
		t.Error("the lock was granted twice")
	}
	if err = held.Release(context.Background()); err != nil {
		t.Error(err)
	}
}
