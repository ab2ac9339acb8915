package serverlock_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/serverlock"
)

// The callers of single flights, in memory. flights_storm_test.go and clients/suite have real servers.

func TestOneCallerComputesForAllCallersOfAllProcesses(t *testing.T) {
	f := newFlightTest(t)
	other, third := f.process(), f.process()
	first, end := f.leads(f.locks, "42 pages", nil)
	var all []pending
	for range 10 {
		for _, locks := range []*serverlock.Locks{f.locks, other, third} {
			all = append(all, f.ask(background, locks, f.never))
		}
	}
	f.waiting(2)
	close(end)
	f.wants(first, "42 pages")
	var values [][]byte
	for _, call := range all {
		got := <-call
		must(t, got.err)
		values = append(values, got.value)
	}
	for _, value := range values {
		if string(value) != "42 pages" {
			t.Errorf("one got %q", value)
		}
		value[0] = '!' // each has its own slice
	}
	f.wants(f.ask(background, other, computes("later")), "later")
	f.leavesNothing()
}

func TestAnEmptyValueIsAValue(t *testing.T) {
	for _, value := range [][]byte{nil, {}} {
		f := newFlightTest(t)
		end := make(chan struct{})
		first := f.ask(background, f.locks, func(context.Context) ([]byte, error) {
			<-end
			return value, nil
		})
		calls := []pending{f.ask(background, f.locks, f.never), f.ask(background, f.process(), f.never)}
		close(end)
		f.wants(first, "")
		for _, call := range calls {
			f.wants(call, "")
		}
		f.leavesNothing()
	}
}

func TestAResultCallsNoHook(t *testing.T) {
	f := newFlightTest(t)
	first, end := f.leads(f.locks, "value", nil)
	second := f.ask(background, f.process(), f.never)
	close(end)
	f.wants(first, "value")
	f.wants(second, "value")
	f.server.Info("report")
	close(f.hooked)
	var called []string
	for name := range f.hooked {
		called = append(called, name)
	}
	f.hooked = make(chan string, 100)
	if !slices.Equal(called, []string{"granted", "released"}) {
		t.Errorf("called were %q", called)
	}
}

func TestAfterAFailureTheCallerThatHasWaitedLongestComputes(t *testing.T) {
	failure := errors.New("no data")
	f := newFlightTest(t)
	first, end := f.leads(f.locks, "", failure)
	second := f.ask(background, f.locks, computes("second"))
	third := f.ask(background, f.locks, f.never)
	close(end)
	if got := <-first; got.err != failure || got.value != nil {
		t.Errorf("it got %q, %v", got.value, got.err)
	}
	// The second may have ended before the third is notified, which then has its value all the same.
	f.wants(second, "second")
	f.wants(third, "second")
	f.leavesNothing()
}

func TestAPanicInComputeLetsTheNextOneCompute(t *testing.T) {
	f := newFlightTest(t)
	end, recovered := make(chan struct{}), make(chan any, 1)
	go func() {
		defer func() { recovered <- recover() }()
		_, _ = f.locks.SingleFlight("report", flightLease).Do(background, func(context.Context) ([]byte, error) {
			<-end
			panic("work")
		})
	}()
	f.server.Info("report")
	same := f.ask(background, f.locks, f.never)
	other, otherEnd := f.leads(f.process(), "other's", nil) // it is the first in the server's queue
	close(end)
	if why := <-recovered; why != "work" {
		t.Errorf("the panic became %v", why)
	}
	f.waiting(1)
	close(otherEnd)
	f.wants(other, "other's")
	f.wants(same, "other's")
	f.leavesNothing()
}

func TestACancelledCallerAffectsNoOther(t *testing.T) {
	f := newFlightTest(t)
	holder, end := f.leads(f.process(), "value", nil)
	var calls []pending
	var cancels []context.CancelFunc
	for range 4 {
		ctx, cancel := context.WithCancel(background)
		cancels, calls = append(cancels, cancel), append(calls, f.ask(ctx, f.locks, f.never))
	}
	for _, number := range []int{1, 0, 2} { // one that follows, and two that lead
		cancels[number]()
		f.fails(calls[number], context.Canceled)
		f.waiting(1)
	}
	close(end)
	f.wants(holder, "value")
	f.wants(calls[3], "value")
	cancels[3]()
	f.leavesNothing()
}

func TestACancelledComputationLetsTheNextOneCompute(t *testing.T) {
	f := newFlightTest(t)
	ctx, cancel := context.WithCancel(background)
	first := f.ask(ctx, f.locks, func(ctx context.Context) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	second := f.ask(background, f.locks, computes("second"))
	cancel()
	if got := <-first; !errors.Is(got.err, context.Canceled) {
		t.Errorf("it got %v", got.err)
	}
	f.wants(second, "second")
	f.leavesNothing()
}

func TestEachCallerHasItsOwnWait(t *testing.T) {
	f := newFlightTest(t)
	held, err := f.process().Lock("report", time.Hour).Acquire(background)
	must(t, err)
	first := f.ask(background, f.locks, f.never, serverlock.Wait(5*time.Second))
	f.server.Clock.Advance(time.Second)
	second := f.ask(background, f.locks, f.never, serverlock.Wait(2*time.Second))
	third := f.ask(background, f.locks, f.never, serverlock.Wait(9*time.Second))
	fourth := f.ask(background, f.locks, computes("fourth"))
	f.server.Clock.Advance(2 * time.Second)
	f.fails(second, serverlock.ErrTimeout)
	f.waiting(1)
	f.server.Clock.Advance(2 * time.Second)
	f.fails(first, serverlock.ErrTimeout)
	f.waiting(1)
	f.server.Clock.Advance(5 * time.Second) // the third leads, with what is left of its own wait
	if got := <-third; !errors.Is(got.err, serverlock.ErrTimeout) || !strings.Contains(got.err.Error(), "9s") {
		t.Errorf("it got %v", got.err)
	}
	f.waiting(1)
	must(t, held.Release(background))
	f.wants(fourth, "fourth")
	f.leavesNothing()
}

func TestByDefaultACallerWaitsForAMinute(t *testing.T) {
	f := newFlightTest(t)
	_, err := f.process().Lock("report", time.Hour).Acquire(background)
	must(t, err)
	calls := []pending{f.ask(background, f.locks, f.never), f.ask(background, f.locks, f.never)}
	f.server.Clock.Advance(59 * time.Second)
	f.waiting(1)
	f.server.Clock.Advance(time.Second)
	for _, call := range calls {
		f.fails(call, serverlock.ErrTimeout)
	}
}

func TestAnErrorOfTheAttemptGoesToAllItsCallers(t *testing.T) {
	f := newFlightTest(t)
	held, err := f.process().Lock("report", time.Hour).Acquire(background)
	must(t, err)
	calls := []pending{f.ask(background, f.locks, f.never), f.ask(background, f.locks, f.never)}
	f.server.Refuse("report", serverlock.ErrDenied)
	for _, call := range calls {
		f.fails(call, serverlock.ErrDenied)
	}
	f.server.Allow("report")
	must(t, held.Release(background))
	f.wants(f.ask(background, f.locks, computes("value")), "value")
	f.leavesNothing()
}

func TestClosingEndsAllThatWait(t *testing.T) {
	f := newFlightTest(t)
	holder, end := f.leads(f.locks, "value", nil)
	follower := f.ask(background, f.locks, f.never)
	other := f.process()
	calls := []pending{follower, f.ask(background, other, f.never), f.ask(background, other, f.never)}
	f.locks.Close()
	other.Close()
	for _, call := range calls {
		f.fails(call, serverlock.ErrMisuse)
	}
	close(end)
	f.wants(holder, "value")
	f.fails(f.ask(background, f.locks, f.never), serverlock.ErrMisuse)
	f.leavesNothing()
}

func TestAskingForTheValueWithinComputeIsAMisuse(t *testing.T) {
	f := newFlightTest(t)
	report := f.locks.SingleFlight("report", flightLease)
	lock := f.locks.Lock("report", flightLease, serverlock.Reentrant())
	first := f.ask(background, f.locks, func(ctx context.Context) ([]byte, error) {
		_, err := report.Do(ctx, f.never)
		mustBe(t, err, serverlock.ErrMisuse)
		_, err = lock.Acquire(ctx)
		mustBe(t, err, serverlock.ErrMisuse)
		f.server.Lose(serverlock.FromContext(ctx))
		<-ctx.Done()
		_, err = report.Do(ctx, f.never) // it would wait for itself
		mustBe(t, err, serverlock.ErrMisuse)
		return []byte("value"), nil
	})
	f.wants(first, "value")
	must(t, f.locks.Lock("report", flightLease).Do(background, func(ctx context.Context) error {
		_, err := report.Do(ctx, f.never)
		mustBe(t, err, serverlock.ErrMisuse)
		return nil
	}))
	f.leavesNothing()
}

func TestALossStopsComputeButAValueNeedsNoLock(t *testing.T) {
	f := newFlightTest(t)
	lost := make(chan error, 2)
	for _, stops := range []bool{true, false} {
		holds := make(chan *serverlock.Held, 1)
		first := f.ask(background, f.locks, func(ctx context.Context) ([]byte, error) {
			holds <- serverlock.FromContext(ctx)
			<-ctx.Done()
			if stops {
				return nil, ctx.Err()
			}
			return []byte("first"), nil
		}, serverlock.OnLost(func(err error) { lost <- err }))
		second := f.ask(background, f.locks, f.never)
		other, end := f.leads(f.process(), "other's", nil)
		f.server.Lose(<-holds) // the other process gets the lock
		mustBe(t, <-lost, serverlock.ErrLost)
		close(end)
		f.wants(other, "other's")
		if stops {
			f.fails(first, serverlock.ErrLost)
			f.wants(second, "other's")
		} else {
			f.wants(first, "first")
			f.wants(second, "first")
		}
		f.leavesNothing()
	}
}

func TestAPlainLockInTheQueueGetsTheLock(t *testing.T) {
	f := newFlightTest(t)
	holder, end := f.leads(f.locks, "value", nil)
	before := f.ask(background, f.process(), f.never)
	granted := make(chan *serverlock.Held)
	go func() {
		held, err := f.process().Lock("report", flightLease, serverlock.Wait(time.Minute)).Acquire(background)
		if err != nil {
			t.Error(err)
		}
		granted <- held
	}()
	f.waiting(2)
	after := f.ask(background, f.process(), f.never)
	f.waiting(3)
	close(end)
	for _, call := range []pending{holder, before, after} {
		f.wants(call, "value")
	}
	must(t, (<-granted).Release(background))
	f.leavesNothing()
}

func TestAValueThatIsTooLongIsComputedByEachProcess(t *testing.T) {
	f := newFlightTest(t)
	for _, size := range []int{65536, 65537} {
		long := strings.Repeat("x", size)
		first, end := f.leads(f.locks, long, nil)
		same := f.ask(background, f.locks, f.never)
		other := f.ask(background, f.process(), computes("own"))
		close(end)
		f.wants(first, long)
		f.wants(same, long)
		if size == 65536 {
			f.wants(other, long)
		} else {
			f.wants(other, "own")
		}
		f.leavesNothing()
	}
}

func TestTheCallersSliceMayChangeAfterTheCall(t *testing.T) {
	f := newFlightTest(t)
	mine := bytes.Repeat([]byte("x"), 100)
	end := make(chan struct{})
	first := f.ask(background, f.locks, func(context.Context) ([]byte, error) {
		<-end
		return mine, nil
	})
	var all sync.WaitGroup
	for range 20 {
		call := f.ask(background, f.locks, f.never)
		all.Add(1)
		go func() {
			defer all.Done()
			(<-call).value[0] = 'y'
		}()
	}
	close(end)
	got := <-first
	mine[0] = 'z' // the race detector would notice
	all.Wait()
	if string(got.value) != "z"+strings.Repeat("x", 99) {
		t.Errorf("it got %q", got.value)
	}
}

func TestBadOptionsOfSingleFlightAreRefused(t *testing.T) {
	f := newFlightTest(t)
	for word, option := range map[string]serverlock.Option{
		"wait is 0s, less than 1ms": serverlock.Wait(0), "wait is 999": serverlock.Wait(time.Millisecond - 1),
		"wait is -1s": serverlock.Wait(-time.Second), "session": serverlock.Session(), "details": serverlock.Details(),
		"reentrant": serverlock.Reentrant(), "replicas": serverlock.Replicas(1, time.Second),
		"fsync": serverlock.Fsync(time.Second), "atLeast": serverlock.AtLeast(time.Second),
		"owner": serverlock.Owner("two words"),
	} {
		_, err := f.locks.SingleFlight("report", flightLease, option).Do(background, f.never)
		mustBe(t, err, serverlock.ErrArgument)
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
	}
	for _, option := range []serverlock.Option{
		serverlock.Wait(time.Millisecond), serverlock.Owner("me"), serverlock.NoOwner(), serverlock.MaxHold(time.Minute),
	} {
		f.wants(f.ask(background, f.locks, computes("value"), option), "value")
	}
	f.leavesNothing()
}
