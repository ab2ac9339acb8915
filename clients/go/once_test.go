package serverlock

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/serverlock/driver"
)

// tickServer grants every lock. When it starts, a daily tick has just begun. It records when the lease ends.
type tickServer struct {
	*slowServer
	ahead   time.Duration
	margin  time.Duration
	replies map[string]func(words []any) (any, error) // instead of the usual replies

	leaseEnds time.Duration // by its own clock, with the margin
}

func newTickServer() *tickServer {
	s := &tickServer{ahead: startTick - now(), margin: time.Second, replies: map[string]func([]any) (any, error){}}
	s.slowServer = &slowServer{
		scripted: &scripted{reply: func(words []any) (any, error) {
			command := words[0].(string)
			if reply := s.replies[command]; reply != nil {
				return reply(words)
			}
			return s.usual(command, words), nil
		}},
		before: func(context.Context, []any) error { return nil },
	}
	return s
}

func (s *tickServer) usual(command string, words []any) any {
	switch command {
	case "TIME":
		return timeReply(now() + s.ahead)
	case "LOCK.INFO":
		return []any{"lease-ms", int64(5000), "free-in-ms", 5001 + s.margin.Milliseconds()}
	case "LOCK.ACQUIRE":
		s.granted(words[3])
	case "LOCK.EXTEND":
		s.granted(words[4])
	case "LOCK.RELEASE":
		s.leaseEnds = 0
	}
	return int64(1)
}

func (s *tickServer) granted(ms any) {
	s.leaseEnds = now() + s.ahead + time.Duration(ms.(int64))*time.Millisecond + s.margin
}

// isKept reports whether the lease ends with the window of the tick.
func (s *tickServer) isKept() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	late := s.leaseEnds - (startTick + day/2)
	return late >= -2*time.Millisecond && late <= 700*time.Millisecond
}

func (s *tickServer) sentCount(command string) int { return len(s.words(command)) }

func runs(t *testing.T, once *Once, body func(ctx context.Context, held *HeldOnce) error) {
	t.Helper()
	outcome, err := once.Do(context.Background(), body)
	if outcome != Ran || err != nil {
		t.Fatalf("the outcome is %q, %v", outcome, err)
	}
}

func TestATickThatHasRunIsKeptUntilItsWindowEnds(t *testing.T) {
	for _, margin := range []time.Duration{0, time.Second, 7 * time.Second} {
		server := newTickServer()
		server.margin = margin
		var hold *HeldOnce
		runs(t, opened(t, server).Once("a", day), func(ctx context.Context, held *HeldOnce) error {
			if held.Tick() != int64(startTick/day) || held.Recovered() || FromContext(ctx) != held.Held || server.isKept() {
				t.Errorf("the body has tick %d", held.Tick())
			}
			hold = held
			return held.Check()
		})
		if !server.isKept() || server.sentCount("LOCK.RELEASE") != 0 {
			t.Errorf("with a margin of %v the lease ends at %v", margin, server.leaseEnds)
		}
		mustKind(t, hold.Check(), ErrLost) // it was released
		if hold.hold.lost() != nil {
			t.Error("the end of a hold counts as a loss")
		}
		if sent := server.words("LOCK.ACQUIRE")[0]; sent[3] != int64(10_000) || sent[len(sent)-1] != "DETAILS" {
			t.Errorf("it sent %v", sent)
		}
	}
}

func TestATickThatSomebodyElseRunsHasNoBody(t *testing.T) {
	server := newTickServer()
	server.replies["LOCK.ACQUIRE"] = func([]any) (any, error) { return nil, nil }
	outcome, err := opened(t, server).Once("a", day).Do(context.Background(), func(context.Context, *HeldOnce) error {
		t.Error("the body runs")
		return nil
	})
	if outcome != Elsewhere || err != nil || server.sentCount("LOCK.EXTEND") != 0 {
		t.Errorf("the outcome is %q, %v", outcome, err)
	}
}

func TestAPredecessorThatDiedInThisWindowIsReported(t *testing.T) {
	for overdue, want := range map[int64]Outcome{
		500: Recovered, (12*time.Hour - 2*time.Second).Milliseconds(): Recovered, (12 * time.Hour).Milliseconds(): Ran,
	} {
		server := newTickServer()
		server.replies["LOCK.ACQUIRE"] = func([]any) (any, error) { return []any{int64(7), overdue, int64(3), "bob"}, nil }
		outcome, err := opened(t, server).Once("a", day).Do(context.Background(), nothing)
		if outcome != want || err != nil {
			t.Errorf("%d ms after the end of the lease the outcome is %q, %v", overdue, outcome, err)
		}
	}
}

func TestABodyThatFailsLetsOthersRunTheTick(t *testing.T) {
	failure := errors.New("work")
	for _, reruns := range []bool{true, false} {
		server := newTickServer()
		once := opened(t, server).Once("a", day, Rerun(reruns))
		outcome, err := once.Do(context.Background(), func(context.Context, *HeldOnce) error { return failure })
		if outcome != "" || err != failure {
			t.Errorf("the outcome is %q, %v", outcome, err)
		}
		func() {
			defer func() { _ = recover() }()
			_, _ = once.Do(context.Background(), func(context.Context, *HeldOnce) error { panic("work") })
		}()
		ctx, cancel := context.WithCancel(context.Background())
		_, err = once.Do(ctx, func(ctx context.Context, _ *HeldOnce) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
		mustKind(t, err, context.Canceled)
		if released, extended := server.sentCount("LOCK.RELEASE"), server.sentCount("LOCK.EXTEND"); released != 3 || extended != 0 {
			t.Errorf("%d releases, %d extensions", released, extended)
		}
	}
}

func TestTheScopeOfABodyRefusesTheSameLock(t *testing.T) {
	locks := opened(t, newTickServer())
	once := locks.Once("a", day)
	runs(t, once, func(ctx context.Context, _ *HeldOnce) error {
		_, err := once.Do(ctx, nothing)
		mustKind(t, err, ErrMisuse)
		mustKind(t, locks.Lock("a", time.Minute).Do(ctx, nil), ErrMisuse)
		again := locks.Lock("a", time.Minute, Reentrant())
		mustKind(t, again.Do(ctx, nil), ErrMisuse)
		_, err = again.Acquire(ctx)
		mustKind(t, err, ErrMisuse)
		return nil
	})
}

func TestABodyMayReleaseItsLock(t *testing.T) {
	server := newTickServer()
	runs(t, opened(t, server).Once("a", day), func(ctx context.Context, held *HeldOnce) error { return held.Release(ctx) })
	if server.sentCount("LOCK.RELEASE") != 1 || server.sentCount("LOCK.EXTEND") != 0 {
		t.Error("it was released twice, or kept")
	}
}

func TestALossDuringTheBodyIsLikeThatOfAnyLock(t *testing.T) {
	server := newTickServer()
	for _, stops := range []bool{true, false} {
		_, err := opened(t, server).Once("a", day).Do(context.Background(), func(ctx context.Context, held *HeldOnce) error {
			_ = held.hold.taken()
			<-ctx.Done()
			if stops {
				return ctx.Err()
			}
			return nil
		})
		mustKind(t, err, ErrLost)
	}
	if server.sentCount("LOCK.RELEASE")+server.sentCount("LOCK.EXTEND") != 0 {
		t.Error("a command was sent for a lost lock")
	}
}

func TestBadArgumentsOfOnceAreRefused(t *testing.T) {
	locks := New(nobody{t})
	for word, once := range map[string]*Once{
		"period is 9.999s": locks.Once("job", 9999*time.Millisecond),
		"period is 0s":     locks.Once("job", 0),
		"lease is 5.001s":  locks.Once("job", 10*time.Second, Lease(5001*time.Millisecond)),
		"lease is 0s":      locks.Once("job", time.Minute, Lease(0)),
		"lease is 31s":     locks.Once("job", time.Minute, Lease(31*time.Second)),
		"owner is":         locks.Once("job", time.Minute, Owner("")),
		"wait":             locks.Once("job", time.Minute, Wait(time.Second)),
		"session":          locks.Once("job", time.Minute, Session()),
		"details":          locks.Once("job", time.Minute, Details()),
		"atLeast":          locks.Once("job", time.Minute, AtLeast(time.Second)),
	} {
		_, err := once.Do(context.Background(), nothing)
		mustKind(t, err, ErrArgument)
		if !strings.Contains(err.Error(), `"job": `+word) {
			t.Errorf("the error is %v", err)
		}
	}
	for want, once := range map[time.Duration]*Once{
		2500 * time.Millisecond: locks.Once("job", 10*time.Second),
		5 * time.Second:         locks.Once("job", 10*time.Second, Lease(5*time.Second), Owner("bob"), MaxHold(time.Hour)),
	} {
		if r := once.request; r.err != nil || r.lease != want {
			t.Errorf("the lease is %v, %v", r.lease, r.err)
		}
	}
	closed := New(nobody{t})
	closed.Close()
	_, err := closed.Once("job", day).Do(context.Background(), nothing)
	mustKind(t, err, ErrMisuse)
}

func TestWithoutRerunTheLeaseIsLongFromTheStart(t *testing.T) {
	for _, margin := range []time.Duration{time.Second, 9 * time.Second} {
		server := newTickServer()
		server.margin = margin
		runs(t, opened(t, server).Once("a", day, Rerun(false)), func(_ context.Context, held *HeldOnce) error {
			if !server.isKept() {
				t.Errorf("with a margin of %v the lease ends at %v", margin, server.leaseEnds)
			}
			suspend(day / 4) // a renewal would be due
			return held.Check()
		})
		corrections := 0
		if margin > time.Second { // unknown until the first grant
			corrections = 1
		}
		if sent := server.sentCount("LOCK.EXTEND"); sent != corrections || !server.isKept() {
			t.Errorf("%d extensions with a margin of %v", sent, margin)
		}
	}
}

func TestALongLeaseFromASlowRequestIsCorrected(t *testing.T) {
	server := newTickServer()
	isSlow := true
	server.before = func(_ context.Context, words []any) error {
		if words[0] == "LOCK.ACQUIRE" || words[0] == "LOCK.EXTEND" && isSlow {
			isSlow = words[0] == "LOCK.ACQUIRE"
			suspend(3 * time.Second)
		}
		return nil
	}
	runs(t, opened(t, server).Once("a", day, Rerun(false)), func(context.Context, *HeldOnce) error {
		if !server.isKept() || server.sentCount("LOCK.EXTEND") != 2 {
			t.Errorf("after %d extensions the lease ends at %v", server.sentCount("LOCK.EXTEND"), server.leaseEnds)
		}
		return nil
	})
}

func TestALongLeaseOfAGrantInTheNextWindowLastsUntilItsEnd(t *testing.T) {
	server := newTickServer()
	server.ahead = startTick + day/2 - 200*time.Millisecond - now()
	server.before = func(_ context.Context, words []any) error {
		if words[0] == "LOCK.ACQUIRE" {
			suspend(500 * time.Millisecond)
		}
		return nil
	}
	runs(t, opened(t, server).Once("a", day, Rerun(false)), func(_ context.Context, held *HeldOnce) error {
		if late := server.leaseEnds - (startTick + day*3/2); late < -2*time.Millisecond || late > 700*time.Millisecond {
			t.Errorf("the lease ends %v after the window", late)
		}
		return held.Check()
	})
}

func TestACallerThatGivesUpBeforeItsBodyHoldsNothing(t *testing.T) {
	for _, command := range []string{"LOCK.INFO", "LOCK.ACQUIRE"} {
		server := newTickServer()
		ctx, giveUp := context.WithCancel(context.Background())
		server.before = func(_ context.Context, words []any) error {
			if words[0] == command {
				giveUp()
			}
			return nil
		}
		locks := opened(t, server)
		_, err := locks.Once("a", day).Do(ctx, func(context.Context, *HeldOnce) error {
			t.Error("the body runs")
			return nil
		})
		mustKind(t, err, context.Canceled)
		eventually(t, "nothing is held", func() bool {
			return server.sentCount("LOCK.RELEASE")+server.sentCount("LOCK.CANCEL") == 1
		})
		leavesNothing(t, locks.engine)
	}
}

func TestACallerThatGivesUpAfterItsBodyKeepsTheTick(t *testing.T) {
	for _, command := range []string{"LOCK.EXTEND", "TIME"} {
		server := newTickServer()
		ctx, giveUp := context.WithCancel(context.Background())
		mayReply := make(chan struct{})
		server.before = func(_ context.Context, words []any) error {
			if words[0] == command && server.sentCount("LOCK.ACQUIRE") > 0 {
				giveUp()
				<-mayReply
			}
			return nil
		}
		outcome, err := opened(t, server).Once("a", day, Lease(time.Hour)).Do(ctx, func(context.Context, *HeldOnce) error {
			suspend(drifts + time.Second)
			return nil
		})
		if outcome != Ran || err != nil || server.isKept() {
			t.Errorf("%s: the outcome is %q, %v", command, outcome, err)
		}
		close(mayReply)
		eventually(t, "it is kept", server.isKept)
		if server.sentCount("LOCK.RELEASE") != 0 {
			t.Error("it was released")
		}
	}
}

func TestTheTimeIsRequestedAgainAfterALongBody(t *testing.T) {
	for _, one := range []struct {
		takes  time.Duration
		fails  bool
		isKept bool
	}{{drifts - time.Minute, false, false}, {drifts + time.Minute, false, true}, {drifts + time.Minute, true, false}} {
		server := newTickServer()
		runs(t, opened(t, server).Once("a", day, Lease(time.Hour)), func(context.Context, *HeldOnce) error {
			suspend(one.takes)
			server.ahead += 20 * time.Second // its clock has drifted, or was set
			if one.fails {
				server.replies["TIME"] = func([]any) (any, error) { return nil, driver.ReplyError("ERR no") }
			}
			return nil
		})
		if server.isKept() != one.isKept || server.sentCount("LOCK.EXTEND") != 1 {
			t.Errorf("after %v the lease ends at %v", one.takes, server.leaseEnds)
		}
	}
}

func TestARenewalInFlightCannotShortenTheLease(t *testing.T) {
	server := newTickServer()
	isSent, mayArrive := make(chan struct{}), make(chan struct{})
	var first sync.Once
	server.before = func(_ context.Context, words []any) error {
		if words[0] == "LOCK.EXTEND" {
			first.Do(func() { close(isSent); <-mayArrive })
		}
		return nil
	}
	done := make(chan struct{})
	locks := opened(t, server)
	go func() {
		defer close(done)
		runs(t, locks.Once("a", day, Lease(time.Hour)), func(context.Context, *HeldOnce) error {
			suspend(20*time.Minute + time.Second)
			<-isSent
			return nil
		})
	}()
	<-isSent
	time.Sleep(100 * time.Millisecond)
	if server.isKept() {
		t.Error("the last EXTEND did not wait")
	}
	close(mayArrive)
	<-done
	if !server.isKept() || server.sentCount("LOCK.EXTEND") != 2 {
		t.Errorf("after %d extensions the lease ends at %v", server.sentCount("LOCK.EXTEND"), server.leaseEnds)
	}
}

func TestAnExtendWhoseCallerGaveUpIsInFlightUntilItHasSettled(t *testing.T) {
	server := newTickServer()
	isSent, mayArrive := make(chan struct{}), make(chan struct{})
	var first sync.Once
	server.before = func(_ context.Context, words []any) error {
		if words[0] == "LOCK.EXTEND" {
			first.Do(func() { close(isSent); <-mayArrive })
		}
		return nil
	}
	held, err := opened(t, server).Lock("a", time.Hour).Acquire(context.Background())
	mustNot(t, err)
	pipe := held.hold.engine.router.pipeline(server.slowServer)
	pipe.isFast.Store(false)
	ctx, giveUp := context.WithCancel(context.Background())
	go func() { <-isSent; giveUp() }()
	mustKind(t, held.Extend(ctx, 0), context.Canceled)
	if held.hold.awaitIdle(10 * time.Millisecond) {
		t.Error("it counts as settled")
	}
	close(mayArrive)
	eventually(t, "it has settled", func() bool { _ = held.hold.awaitIdle(time.Second); return held.hold.inFlight == 0 })
}

func TestNoExtendIsSentOnceAHoldHasEnded(t *testing.T) {
	server := newTickServer()
	locks := opened(t, server)
	held, err := locks.Lock("a", time.Hour).Acquire(context.Background())
	mustNot(t, err)
	mustNot(t, held.Release(context.Background()))
	locks.engine.timer.renew(held.hold) // was due just before the release
	mustKind(t, held.Extend(context.Background(), 0), ErrLost)
	if sent := server.sentCount("LOCK.EXTEND"); sent != 0 {
		t.Errorf("%d were sent", sent)
	}
}

func TestASlowExtendIsSentAgainAtMostTwice(t *testing.T) {
	for slow, want := range map[int]int{1: 2, 2: 3, 9: 3} {
		server, left := newTickServer(), slow
		server.before = func(_ context.Context, words []any) error {
			if left > 0 && words[0] == "LOCK.EXTEND" {
				left--
				suspend(time.Second)
			}
			return nil
		}
		runs(t, opened(t, server).Once("a", day, Lease(time.Hour)), nothing)
		if sent := server.sentCount("LOCK.EXTEND"); sent != want || server.isKept() != (slow < 3) {
			t.Errorf("%d were sent, and the lease ends at %v", sent, server.leaseEnds)
		}
	}
}

func TestALostReplyToTheLastExtendIsFollowedByALateCopy(t *testing.T) {
	server := newTickServer()
	isLost := true
	server.replies["LOCK.EXTEND"] = func(words []any) (any, error) {
		if isLost {
			isLost = false
			return nil, io.EOF
		}
		return server.usual("LOCK.EXTEND", words), nil
	}
	locks := opened(t, server)
	runs(t, locks.Once("a", day, Lease(time.Hour)), nothing)
	if !server.isKept() || server.sentCount("LOCK.EXTEND") != 2 {
		t.Errorf("after %d extensions the lease ends at %v", server.sentCount("LOCK.EXTEND"), server.leaseEnds)
	}
	suspend(lateCopy)
	server.awaits(t, "LOCK.EXTEND", 3)
	leavesNothing(t, locks.engine)
	if !server.isKept() || server.sentCount("LOCK.EXTEND") != 3 || server.sentCount("LOCK.RELEASE") != 0 {
		t.Errorf("after %d extensions the lease ends at %v", server.sentCount("LOCK.EXTEND"), server.leaseEnds)
	}
}

func TestATickIsKeptInTheBackgroundOnABusyServer(t *testing.T) {
	server, busy := newTickServer(), 6
	server.replies["LOCK.EXTEND"] = func(words []any) (any, error) {
		if busy > 0 {
			busy--
			return nil, driver.ReplyError("BUSY running a script")
		}
		return server.usual("LOCK.EXTEND", words), nil
	}
	locks := opened(t, server, WithTimeout(20*time.Millisecond))
	runs(t, locks.Once("a", day, Lease(time.Hour)), nothing)
	if server.isKept() {
		t.Error("it waited for the server")
	}
	eventually(t, "it is kept", server.isKept)
	kept := server.sentCount("LOCK.EXTEND")
	suspend(lateCopy)
	eventually(t, "a last copy is sent", func() bool { return server.sentCount("LOCK.EXTEND") == kept+1 })
	leavesNothing(t, locks.engine)
}

func TestAnErrorThatIsNotRetriedEndsTheKeep(t *testing.T) {
	server, busy := newTickServer(), always
	server.replies["LOCK.EXTEND"] = func([]any) (any, error) {
		if busy > 0 {
			busy--
			return nil, driver.ReplyError("BUSY running a script")
		}
		return nil, driver.ReplyError("GRACE lease is longer than the grace")
	}
	locks := opened(t, server, WithTimeout(20*time.Millisecond))
	runs(t, locks.Once("a", day, Lease(time.Hour)), nothing) // in the background, too
	server.mu.Lock()
	busy = 0
	server.mu.Unlock()
	leavesNothing(t, locks.engine)
	_, err := locks.Once("a", day, Lease(time.Hour)).Do(context.Background(), nothing)
	mustKind(t, err, ErrUnavailable)
	if server.sentCount("LOCK.RELEASE") != 0 {
		t.Error("it was released")
	}
}

func TestALockWhoseWindowIsOverIsReleased(t *testing.T) {
	server := newTickServer()
	runs(t, opened(t, server).Once("a", day, Lease(day/2)), func(context.Context, *HeldOnce) error {
		server.ahead += 12 * time.Hour
		suspend(drifts + time.Second)
		return nil
	})
	if server.sentCount("LOCK.RELEASE") != 1 || server.sentCount("LOCK.EXTEND") != 0 {
		t.Error("it was not released, or kept")
	}
}

func TestAClosedManagerKeepsTheTick(t *testing.T) {
	server := newTickServer()
	locks := opened(t, server)
	runs(t, locks.Once("a", day), func(context.Context, *HeldOnce) error {
		locks.Close()
		return nil
	})
	if !server.isKept() || server.sentCount("LOCK.RELEASE") != 0 {
		t.Errorf("the lease ends at %v", server.leaseEnds)
	}
}
