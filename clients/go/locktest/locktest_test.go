package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"example.com/serverlock"
)

func TestSeveralLocksBehaveLikeSeveralProcesses(t *testing.T) {
	server := NewServer()
	one, two := locksOf(t, server), locksOf(t, server)
	held := acquire(t, one.Lock("report", lease))
	if _, err := two.Lock("report", lease).Acquire(ctx); !errors.Is(err, serverlock.ErrRefused) {
		t.Errorf("another process got %v", err)
	}
	if err := held.Release(ctx); err != nil {
		t.Error(err)
	}
	newer := acquire(t, two.Lock("report", lease))
	if newer.Token() <= held.Token() {
		t.Errorf("token %d does not grow after %d", newer.Token(), held.Token())
	}
	if _, err := locksOf(t, NewServer()).Lock("report", lease).Acquire(ctx); err != nil {
		t.Errorf("two servers share a lock: %v", err)
	}
}

func TestAttemptsGetTheLockInOrderOfArrival(t *testing.T) {
	for _, processes := range []int{1, 4} { // blocked connections, or NOTIFY
		server, seen := NewServer(), &order{}
		all := make([]*serverlock.Locks, processes)
		for at := range all {
			all[at] = locksOf(t, server)
		}
		held := acquire(t, all[0].Lock("report", lease))
		var want []string
		for number := range 4 {
			name := fmt.Sprint(number)
			want = append(want, name)
			go func() {
				_ = all[number%processes].Lock("report", lease, serverlock.Wait(time.Hour)).Do(ctx, func(context.Context) error {
					seen.add(name)
					return nil
				})
			}()
			if info := server.Info("report"); info.Waiters != number+1 {
				t.Fatalf("%d wait, not %d", info.Waiters, number+1)
			}
		}
		if err := held.Release(ctx); err != nil {
			t.Error(err)
		}
		if info := server.Info("report"); info != (Info{State: "free"}) {
			t.Errorf("the lock is %v", info)
		}
		seen.want(t, want...)
	}
}

func TestALongWaitKeepsItsPlace(t *testing.T) {
	server, seen := NewServer(), &order{}
	holder := acquire(t, locksOf(t, server).Lock("report", lease))
	busy := locksOf(t, server)
	seen.wait(t, server, "first", locksOf(t, server).Lock("report", lease, serverlock.Wait(time.Hour)))
	for _, name := range []string{"second", "third"} {
		seen.wait(t, server, name, busy.Lock("report", lease, serverlock.Wait(serverlock.Forever)))
	}
	// Many renewals, and many pieces of the blocking wait: the last one has just begun.
	server.Clock.Advance(10*time.Minute + time.Second/2)
	seen.want(t)
	if err := holder.Release(ctx); err != nil {
		t.Error(err)
	}
	server.Info("report")
	seen.want(t, "first")
}

func TestTimeStandsStillUntilItIsMoved(t *testing.T) {
	server := NewServer()
	held := acquire(t, locksOf(t, server).Lock("report", lease))
	if left := held.Left(); left != lease*9/10 {
		t.Errorf("%v are left", left)
	}
	before := server.Clock.Now()
	server.Clock.Advance(time.Second)
	if left := held.Left(); left != lease*9/10-time.Second {
		t.Errorf("%v are left after a second", left)
	}
	if moved := server.Clock.Now().Sub(before); moved != time.Second {
		t.Errorf("the clock moved by %v", moved)
	}
}

func TestAWaitEndsWithATimeoutWhenTheClockSaysSo(t *testing.T) {
	server, seen := NewServer(), &order{}
	acquire(t, locksOf(t, server).Lock("report", time.Hour))
	locks := locksOf(t, server)
	for _, seconds := range []time.Duration{7, 3, 5} {
		wait := seconds * time.Second
		seen.wait(t, server, wait.String(), locks.Lock("report", lease, serverlock.Wait(wait)))
	}
	server.Clock.Advance(3*time.Second - 1)
	seen.want(t)
	server.Clock.Advance(1)
	seen.want(t, "3s timeout")
	server.Clock.Advance(time.Minute)
	seen.want(t, "3s timeout", "5s timeout", "7s timeout")
	if info := server.Info("report"); info.Waiters != 0 {
		t.Errorf("%d wait", info.Waiters)
	}
}

func TestLocksAreRenewedAsTheClockMoves(t *testing.T) {
	server, seen := NewServer(), &order{}
	locks := locksOf(t, server)
	held := acquire(t, locks.Lock("report", lease))
	bounded := acquire(t, locks.Lock("bounded", lease, serverlock.MaxHold(time.Minute),
		serverlock.OnLost(func(error) { seen.add("lost") })))
	server.Clock.Advance(time.Minute)
	seen.want(t)
	server.Clock.Advance(time.Minute)
	seen.want(t, "lost")
	if err := bounded.Check(); !errors.Is(err, serverlock.ErrLost) {
		t.Errorf("after its MaxHold: %v", err)
	}
	if err := held.Check(); err != nil {
		t.Error(err)
	}
	if info := server.Info("bounded"); info.State != "expired" {
		t.Errorf("it is %v", info)
	}
}

func TestAnExpiredLeasePassesTheLockOn(t *testing.T) {
	server, seen := NewServer(), &order{}
	held := acquire(t, locksOf(t, server).Lock("report", lease, serverlock.Owner("alice"),
		serverlock.OnLost(func(error) { seen.add("lost") })))
	got := make(chan *serverlock.Held, 1)
	go func() {
		next, _ := locksOf(t, server).Lock("report", lease, serverlock.Wait(time.Hour), serverlock.Details()).Acquire(ctx)
		got <- next
	}()
	server.Info("report")
	server.Expire("report")
	next := <-got
	if before := next.Predecessor(); before == nil || before.Owner != "alice" || before.Token != held.Token() {
		t.Errorf("the predecessor is %v", before)
	}
	seen.want(t) // the next renewal shows it
	if err := held.Check(); err != nil {
		t.Error(err)
	}
	server.Clock.Advance(lease / 3)
	seen.want(t, "lost")
	if err := held.Release(ctx); !errors.Is(err, serverlock.ErrLost) {
		t.Errorf("the release returned %v", err)
	}
}

func TestOnlyAnExpiredLockCanBeRecovered(t *testing.T) {
	server := NewServer()
	locks := locksOf(t, server)
	repair := locksOf(t, server).Recover("report", lease)
	held := acquire(t, locks.Lock("report", lease, serverlock.Owner("alice")))
	if _, err := repair.Acquire(ctx); !errors.Is(err, serverlock.ErrRefused) {
		t.Errorf("a held lock: %v", err)
	}
	server.Expire("report")
	if owner := acquire(t, repair).Predecessor().Owner; owner != "alice" {
		t.Errorf("the predecessor is %q", owner)
	}
	if _, err := held.Verify(ctx); !errors.Is(err, serverlock.ErrLost) {
		t.Errorf("the old holder: %v", err)
	}
}

func TestALostHoldStopsTheWork(t *testing.T) {
	server, seen := NewServer(), &order{}
	ended := make(chan error, 1)
	entered := make(chan *serverlock.Held)
	locks := locksOf(t, server)
	go func() {
		ended <- locks.Lock("report", lease).Do(ctx, func(ctx context.Context) error {
			entered <- serverlock.FromContext(ctx)
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	held := <-entered
	seen.wait(t, server, "next", locksOf(t, server).Lock("report", lease, serverlock.Wait(time.Hour)))
	server.Lose(held)
	if err := <-ended; !errors.Is(err, serverlock.ErrLost) {
		t.Errorf("the work ended with %v", err)
	}
	seen.want(t, "next")
}

func TestARefusedKeyFailsUntilItIsAllowed(t *testing.T) {
	server, seen := NewServer(), &order{}
	locks := locksOf(t, server)
	held := acquire(t, locks.Lock("report", lease, serverlock.OnLost(func(error) { seen.add("lost") })))
	waits := locks.Lock("report", lease, serverlock.Wait(time.Hour))
	for _, name := range []string{"one", "two"} {
		seen.wait(t, server, name, waits)
	}
	server.Refuse("report", serverlock.ErrUnavailable)
	seen.wantInAnyOrder(t, "one unavailable", "two unavailable")
	for kind := range replies {
		server.Refuse("report", kind)
		for _, lock := range []*serverlock.Lock{waits, locks.Lock("report", lease)} {
			if _, err := lock.Acquire(ctx); !errors.Is(err, kind) {
				t.Errorf("%v is not %v", err, kind)
			}
		}
	}
	if err := held.Extend(ctx, 0); err == nil || held.Check() != nil {
		t.Errorf("the lock is extended: %v, or lost: %v", err, held.Check())
	}
	server.Clock.Advance(lease)
	seen.wantInAnyOrder(t, "one unavailable", "two unavailable", "lost")
	if err := held.Check(); !errors.Is(err, serverlock.ErrLost) { // held is reachable until here
		t.Error(err)
	}
	server.Allow("report")
	server.Clock.Advance(2 * time.Second)
	acquire(t, locks.Lock("report", lease))
}

func TestReadersShareALockAndAWriterIsAlone(t *testing.T) {
	server, seen := NewServer(), &order{}
	locks := locksOf(t, server)
	reader := acquire(t, locks.Shared("report", time.Hour))
	acquire(t, locksOf(t, server).Shared("report", lease)).Release(ctx)
	seen.wait(t, server, "writer", locks.Lock("report", lease, serverlock.Wait(10*time.Second)))
	seen.wait(t, server, "reader", locks.Shared("report", lease, serverlock.Wait(time.Minute)))
	seen.want(t)
	server.Clock.Advance(10 * time.Second) // the reader is no longer behind a writer
	seen.wantInAnyOrder(t, "writer timeout", "reader")
	_ = reader.Release(ctx)
	for range 3 {
		acquire(t, locks.Limit("pool", 3, lease))
	}
	if _, err := locks.Limit("pool", 3, lease).Acquire(ctx); !errors.Is(err, serverlock.ErrRefused) {
		t.Errorf("a fourth holder: %v", err)
	}
}

func TestSeveralKeysAreLockedTogether(t *testing.T) {
	server, seen := NewServer(), &order{}
	locks := locksOf(t, server)
	a, b := acquire(t, locks.Lock("a", time.Hour)), acquire(t, locks.Lock("b", time.Hour))
	seen.wait(t, server, "both", locks.AllOf([]string{"a", "b"}, lease, serverlock.Wait(time.Hour)))
	_ = a.Release(ctx)
	seen.want(t)
	other := acquire(t, locks.Lock("a", lease)) // a wait reserves nothing
	_ = b.Release(ctx)
	server.Info("b")
	seen.want(t)
	_ = other.Release(ctx)
	if server.Info("a").Token != server.Info("b").Token {
		t.Error("the tokens differ")
	}
	seen.want(t, "both")
}

func TestASessionLockEndsASecondAfterItsProcess(t *testing.T) {
	server, seen := NewServer(), &order{}
	locks := server.Locks()
	held := acquire(t, locks.Lock("report", time.Hour, serverlock.Session()))
	seen.wait(t, server, "next", locksOf(t, server).Lock("report", lease, serverlock.Wait(time.Hour), serverlock.Session()))
	locks.Close()
	server.Clock.Advance(margin - 1)
	seen.want(t)
	if err := held.Check(); !errors.Is(err, serverlock.ErrLost) {
		t.Errorf("the lock of a closed connection: %v", err)
	}
	server.Clock.Advance(1)
	seen.want(t, "next")
}

func TestOneProcessRunsEachTick(t *testing.T) {
	server := NewServer()
	one, two := locksOf(t, server).Once("job", time.Hour), locksOf(t, server).Once("job", time.Hour)
	for range 3 {
		ran := func(once *serverlock.Once) serverlock.Outcome {
			outcome, err := once.Do(ctx, func(context.Context, *serverlock.HeldOnce) error { return nil })
			if err != nil {
				t.Error(err)
			}
			return outcome
		}
		if got := []serverlock.Outcome{ran(one), ran(two)}; !slices.Equal(got, []serverlock.Outcome{"ran", "elsewhere"}) {
			t.Errorf("the outcomes are %v", got)
		}
		server.Clock.Advance(time.Hour)
	}
}

func TestALeaderStepsDown(t *testing.T) {
	server, seen := NewServer(), &order{}
	var leaders []*serverlock.Leader
	for _, name := range []string{"one", "two"} {
		leader := locksOf(t, server).Leader("chief", lease)
		leaders = append(leaders, leader)
		running, stop := context.WithCancel(ctx)
		defer stop()
		go func() {
			_ = leader.Run(running, func(ctx context.Context, _ int64) {
				seen.add(name)
				<-ctx.Done()
			})
		}()
		server.Clock.Advance(10 * time.Minute)
	}
	seen.want(t, "one")
	leaders[0].Resign()
	server.Clock.Advance(10 * time.Minute)
	seen.want(t, "one", "two")
}

func TestWhatTheServerLacksIsUnavailable(t *testing.T) {
	locks := locksOf(t, NewServer())
	held := acquire(t, locks.Lock("report", lease))
	_, fenced := held.Fenced(ctx, "SET", "key", "value")
	_, replicas := locks.Lock("other", lease, serverlock.Replicas(1, time.Second)).Acquire(ctx)
	_, fsync := locks.Lock("other", lease, serverlock.Fsync(time.Second)).Acquire(ctx)
	for _, err := range []error{fenced, replicas, fsync} {
		if !errors.Is(err, serverlock.ErrUnavailable) {
			t.Errorf("%v", err)
		}
	}
	if err := held.Release(ctx); err != nil {
		t.Error(err)
	}
}

func TestACancelledAttemptLeavesNothing(t *testing.T) {
	server := NewServer()
	acquire(t, locksOf(t, server).Lock("report", lease))
	locks := locksOf(t, server)
	waiting, cancel := context.WithCancel(ctx)
	ended := make(chan error)
	for range 2 {
		go func() {
			_, err := locks.Lock("report", lease, serverlock.Wait(time.Hour)).Acquire(waiting)
			ended <- err
		}()
	}
	// A busy machine may not have started both goroutines yet.
	for deadline := time.Now().Add(time.Minute); server.Info("report").Waiters != 2; {
		if time.Now().After(deadline) {
			t.Fatalf("%d wait", server.Info("report").Waiters)
		}
	}
	cancel()
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if count := server.Info("report").Waiters; count != 0 {
		t.Errorf("%d wait", count)
	}
}
