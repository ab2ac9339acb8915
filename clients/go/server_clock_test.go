package serverlock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"example.com/serverlock/driver"
)

// clockServer is a server whose clock is ahead of the local one. Its replies to TIME take a while, by the local clock.
type clockServer struct {
	*scripted
	ahead time.Duration
	takes []time.Duration // one for each reply; the last one applies to all that follow
	fails []error
}

func newClockServer() *clockServer {
	s := &clockServer{ahead: 1_000_000 * time.Second, takes: []time.Duration{0}}
	s.scripted = &scripted{reply: func([]any) (any, error) {
		if len(s.fails) > 0 {
			err := s.fails[0]
			s.fails = s.fails[1:]
			return nil, err
		}
		takes := s.takes[0]
		if len(s.takes) > 1 {
			s.takes = s.takes[1:]
		}
		suspend(takes / 2)
		defer suspend(takes / 2)
		return timeReply(now() + s.ahead), nil
	}}
	return s
}

func timeReply(at time.Duration) any {
	return []any{fmt.Sprint(int64(at / time.Second)), fmt.Sprint(int64(at % time.Second / time.Microsecond))}
}

func (s *clockServer) asked() int { return len(s.words("TIME")) }

// scriptedCluster is a cluster of one server.
type scriptedCluster struct{ *scripted }

func (s scriptedCluster) NodeAt(context.Context, string) (driver.Node, error) { return s.scripted, nil }
func (s scriptedCluster) Refresh(context.Context) error                       { return nil }

func keyed(key string) *request { return newRequest([]string{key}, time.Minute, one, nil, nil) }

func estimated(t *testing.T, locks *Locks, key string) estimate {
	t.Helper()
	found, err := locks.engine.serverClock.read(context.Background(), keyed(key))
	mustNot(t, err)
	return found
}

func isNear(got, want time.Duration) bool { return (got - want).Abs() < 100*time.Millisecond }

func TestTheOffsetIsTakenAtTheMidpointOfTheCall(t *testing.T) {
	server := newClockServer()
	server.takes = []time.Duration{400 * time.Millisecond}
	found := estimated(t, opened(t, server), "a")
	// This machine may be slow, but then the doubt is larger.
	if off := (found.offset - server.ahead).Abs(); off > found.doubt-200*time.Millisecond+time.Millisecond {
		t.Errorf("the offset is wrong by %v", off)
	}
	if !isNear(found.doubt, 200*time.Millisecond) {
		t.Errorf("the doubt is %v", found.doubt)
	}
}

func TestRepliesToTimeAreTextBytesOrNumbers(t *testing.T) {
	const sent, received = 10 * time.Second, 10500 * time.Millisecond
	for _, reply := range []any{
		[]any{"1800000000", "250000"}, []any{[]byte("1800000000"), []byte("250000")}, []any{int64(1_800_000_000), int64(250_000)},
	} {
		found, err := estimateOf(reply, sent, received)
		mustNot(t, err)
		want := estimate{
			offset: 1_800_000_000*time.Second + 250*time.Millisecond - 10250*time.Millisecond,
			doubt:  250 * time.Millisecond, asked: received,
		}
		if found != want || !found.isGood() {
			t.Errorf("%v became %v", reply, found)
		}
	}
	for _, reply := range []any{nil, "OK", []any{"1"}, []any{"x", "y"}} {
		if _, err := estimateOf(reply, 0, 0); codeOf(err) != "ERR" {
			t.Errorf("%v became %v", reply, err)
		}
	}
}

func TestTheTimeIsRequestedAtMostOnceAMinute(t *testing.T) {
	server := newClockServer()
	locks := opened(t, server)
	for range 3 {
		estimated(t, locks, "a")
	}
	suspend(clockValidFor - 10*time.Second)
	estimated(t, locks, "b")
	if asked := server.asked(); asked != 1 {
		t.Errorf("it was asked %d times", asked)
	}
	suspend(11 * time.Second)
	server.ahead += 3 * time.Second // somebody has set its clock
	if found := estimated(t, locks, "a"); !isNear(found.offset, server.ahead) || server.asked() != 2 {
		t.Errorf("it was asked %d times, and is ahead by %v", server.asked(), found.offset)
	}
}

func TestTheTimeIsRequestedAgainAfterASlowReply(t *testing.T) {
	server := newClockServer()
	server.takes = []time.Duration{510 * time.Millisecond, 0}
	locks := opened(t, server)
	found := estimated(t, locks, "a")
	if again := estimated(t, locks, "a"); again != found || !found.isGood() || server.asked() != 2 {
		t.Errorf("it was asked %d times, with a doubt of %v", server.asked(), found.doubt)
	}
}

func TestAnEstimateFromSlowRepliesIsUsedOnce(t *testing.T) {
	server := newClockServer()
	server.takes = []time.Duration{800 * time.Millisecond, 1200 * time.Millisecond, 0}
	locks := opened(t, server)
	if found := estimated(t, locks, "a"); found.isGood() || !isNear(found.doubt, 400*time.Millisecond) {
		t.Errorf("the doubt is %v", found.doubt)
	}
	estimated(t, locks, "a")
	estimated(t, locks, "a")
	if asked := server.asked(); asked != 3 {
		t.Errorf("it was asked %d times", asked)
	}
	suspend(clockValidFor)
	server.takes, server.fails = []time.Duration{800 * time.Millisecond}, nil
	server.reply = failsAfter(server.reply, 1, io.EOF)
	if found := estimated(t, locks, "a"); found.isGood() { // the second reply was lost
		t.Errorf("the doubt is %v", found.doubt)
	}
}

// failsAfter replies with the error after the first replies.
func failsAfter(reply func([]any) (any, error), first int, err error) func([]any) (any, error) {
	return func(words []any) (any, error) {
		if first--; first < 0 {
			return nil, err
		}
		return reply(words)
	}
}

func TestEachServerOfAClusterHasItsOwnClock(t *testing.T) {
	server := newClockServer()
	locks := opened(t, scriptedCluster{server.scripted})
	for _, key := range []string{"a", "b", "a"} {
		estimated(t, locks, key)
	}
	if asked := server.asked(); asked != 2 {
		t.Errorf("they were asked %d times", asked)
	}
	suspend(clockValidFor)
	estimated(t, locks, "a")
	if known := len(locks.engine.serverClock.known); known != 1 {
		t.Errorf("%d estimates are kept", known)
	}
}

func TestTheTimeIsRequestedAgainAfterALostReply(t *testing.T) {
	server := newClockServer()
	locks := opened(t, server)
	server.fails = []error{io.EOF}
	estimated(t, locks, "a")
	suspend(clockValidFor)
	for _, one := range []struct {
		fails []error
		kind  error
	}{
		{[]error{io.EOF, io.EOF}, ErrNoServer},
		{[]error{driver.ReplyError("NOPERM no")}, ErrDenied},
		{[]error{driver.ReplyError("LOADING soon"), driver.ReplyError("LOADING soon")}, ErrUnavailable},
	} {
		server.fails = one.fails
		_, err := locks.Once("a", day).Do(context.Background(), nothing)
		mustKind(t, err, one.kind)
	}
	if asked, acquired := server.asked(), len(server.words("LOCK.ACQUIRE")); asked != 7 || acquired != 0 {
		t.Errorf("TIME was sent %d times, LOCK.ACQUIRE %d times", asked, acquired)
	}
}

func nothing(context.Context, *HeldOnce) error { return nil }

// slowServer delays calls outside the mutex of scripted.
type slowServer struct {
	*scripted
	before func(ctx context.Context, words []any) error
}

func (s *slowServer) Node(context.Context, string) (driver.Node, error) { return s, nil }

func (s *slowServer) Exchange(ctx context.Context, calls []*driver.Call) {
	for _, call := range calls {
		if call.Err = s.before(ctx, call.Words); call.Err == nil {
			s.scripted.Exchange(ctx, []*driver.Call{call})
		}
	}
}

func TestManyCallersAskForTheTimeOnce(t *testing.T) {
	server, isAsked, mayReply := newClockServer(), make(chan struct{}), make(chan struct{})
	locks := opened(t, &slowServer{server.scripted, func(context.Context, []any) error {
		close(isAsked) // a second call would panic
		<-mayReply
		return nil
	}})
	var all sync.WaitGroup
	for range 20 {
		all.Add(1)
		go func() {
			defer all.Done()
			estimated(t, locks, "a")
		}()
	}
	<-isAsked
	ctx, giveUp := context.WithCancel(context.Background())
	giveUp()
	_, err := locks.engine.serverClock.read(ctx, keyed("a")) // affects nobody else
	mustKind(t, err, context.Canceled)
	close(mayReply)
	all.Wait()
	if asked := server.asked(); asked != 1 {
		t.Errorf("it was asked %d times", asked)
	}
}

func TestACallerThatGivesUpPassesTheQuestionOn(t *testing.T) {
	server := newClockServer()
	ctx, giveUp := context.WithCancel(context.Background())
	locks := opened(t, &slowServer{server.scripted, func(called context.Context, _ []any) error {
		if ctx.Err() == nil {
			giveUp()
			<-called.Done()
			return called.Err()
		}
		return nil
	}}, WithTimeout(500*time.Millisecond))
	_, err := locks.Once("a", day).Do(ctx, nothing)
	mustKind(t, err, context.Canceled)
	estimated(t, locks, "a")
}

func TestTheMarginIsRequestedAtMostOnceAMinute(t *testing.T) {
	asked := 0
	answers := []any{
		[]any{"lease-ms", int64(5000), "free-in-ms", int64(12_001)}, driver.ReplyError("NOPERM no"), io.EOF,
		map[any]any{"state": "held"},
	}
	server := &scripted{reply: func([]any) (any, error) {
		asked++
		answer := answers[asked-1]
		if err, ok := answer.(error); ok {
			return nil, err
		}
		return answer, nil
	}}
	clock := opened(t, server).engine.serverClock
	for _, want := range []time.Duration{7 * time.Second, 7 * time.Second, usualMargin} {
		for range 2 { // after a lost reply, the next caller asks again
			if got, err := clock.readMargin(context.Background(), keyed("a")); err != nil || got != want && asked != 3 {
				t.Errorf("after %d questions it is %v, %v", asked, got, err)
			}
		}
		suspend(clockValidFor)
	}
	if asked != 4 || clock.margin != usualMargin {
		t.Errorf("it was asked %d times, and is %v", asked, clock.margin)
	}
	giveUp := errors.New("given up")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(giveUp)
	clock.asking <- struct{}{}
	_, err := clock.readMargin(ctx, keyed("a"))
	mustKind(t, err, context.Canceled)
}
