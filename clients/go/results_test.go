package serverlock

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/serverlock/driver"
)

// What single flights send, to the module and to the script. flights_test.go and clients/suite test what they return.

func value(text string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) { return []byte(text), nil }
}

// flown returns the value of the key a.
func flown(t *testing.T, locks *Locks, own string) string {
	t.Helper()
	got, err := locks.SingleFlight("a", time.Minute).Do(context.Background(), value(own))
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

func TestTheKeyOfAResultIsNamedLikeTheQueue(t *testing.T) {
	for key, want := range map[string]string{
		"report": "report:result:{report}", "{42}:report": "{42}:report:result", "a:queue": "a:queue:result:{a:queue}",
		"a{": "", "{}": "",
	} {
		if got := resultOf(key); got != want {
			t.Errorf("the result of %q is at %q", key, got)
		}
	}
}

func TestOnlyCopiesThatWaitAskForAResult(t *testing.T) {
	r := newSingleFlight(newEngine(nobody{t}, &managerSettings{clock: leaseClock}), "a", time.Minute, nil).request
	for text, c := range map[string]*call{
		"":                           r.acquire("7", 0, ""),
		" WAIT 1000 RESULT":          r.acquire("7", time.Second, ""),
		" WAIT 1000 NOTIFY c RESULT": r.acquire("7", time.Second, "c"),
	} {
		want := fmt.Sprintf("[LOCK.ACQUIRE a PX 60000 ID 7 OWNER %s%s]", hostAndPID(), text)
		if got := fmt.Sprint(c.words()); got != want {
			t.Errorf("it sends %s, not %s", got, want)
		}
	}
}

func TestAResultEndsTheAttempt(t *testing.T) {
	for _, reply := range []any{"42 pages", []byte("42 pages")} {
		server := &scripted{reply: func(words []any) (any, error) {
			if slices.Contains(words, any("RESULT")) {
				return []any{reply}, nil
			}
			return nil, nil // somebody else has it
		}}
		locks := opened(t, server)
		subscribe(locks)
		if got := flown(t, locks, "own"); got != "42 pages" {
			t.Errorf("it got %q", got)
		}
		if len(server.words("LOCK.CANCEL"))+len(server.words("LOCK.RELEASE")) > 0 {
			t.Error("it was cancelled")
		}
	}
}

func TestAnAttemptThatWasQueuedMissesNoResultWhenItWaitsInAnotherWay(t *testing.T) {
	server := &scripted{reply: func(words []any) (any, error) {
		if slices.Contains(words, any("RESULT")) {
			return []any{"theirs"}, nil
		}
		return int64(1), nil // the lock is free by now
	}}
	e := opened(t, server).engine
	e.blocking.isOver = true // others wait too
	a := newAttempt(context.Background(), e, newSingleFlight(e, "a", time.Minute, nil).request, e.now())
	a.wasQueued = true
	_, err := a.run()
	if end, ok := as[*resolved](err); !ok || string(end.value) != "theirs" {
		t.Errorf("the attempt ended with %v", err)
	}
}

func TestTheLockIsReleasedWithTheResult(t *testing.T) {
	server := &scripted{reply: func([]any) (any, error) { return int64(1), nil }}
	if got := flown(t, opened(t, server), "\x00\xff"); got != "\x00\xff" {
		t.Errorf("it got %q", got)
	}
	sent := server.words("LOCK.RELEASE")
	if len(sent) != 1 || len(sent[0]) != 5 || sent[0][3] != "RESULT" || !bytes.Equal(sent[0][4].([]byte), []byte("\x00\xff")) {
		t.Errorf("it sent %q", sent)
	}
}

func TestARefusedResultIsLeftOut(t *testing.T) {
	for _, inBackground := range []bool{false, true} {
		fails := 0
		if inBackground {
			fails = 6
		}
		server := &scripted{reply: func(words []any) (any, error) {
			switch {
			case words[0] == "LOCK.RELEASE" && fails > 0:
				fails--
				return nil, driver.ReplyError("MISCONF no disk")
			case words[0] == "LOCK.RELEASE" && len(words) > 3:
				return nil, driver.ReplyError("ERR result is longer than 3 bytes, the limit lock.result-max")
			}
			return int64(1), nil
		}}
		locks := opened(t, server, WithTimeout(50*time.Millisecond))
		if got := flown(t, locks, "long"); got != "long" {
			t.Errorf("it got %q", got)
		}
		eventually(t, "it is released", func() bool {
			sent := server.words("LOCK.RELEASE")
			return len(sent[len(sent)-1]) == 3
		})
		leavesNothing(t, locks.engine)
	}
}

func TestAResultIsPassedOnOnceTheServerIsBack(t *testing.T) {
	server := flaky("LOCK.RELEASE", "MISCONF no disk", 6)
	locks := opened(t, server, WithTimeout(50*time.Millisecond))
	if got := flown(t, locks, "value"); got != "value" {
		t.Errorf("it got %q", got)
	}
	server.awaits(t, "LOCK.RELEASE", 7)
	leavesNothing(t, locks.engine)
	for _, words := range server.words("LOCK.RELEASE") {
		if len(words) != 5 {
			t.Errorf("it sent %q", words)
		}
	}
}

func TestAComputationThatFailsPassesNothingOn(t *testing.T) {
	for _, server := range []*scripted{flaky("", "", 0), scriptOnly(grants)} {
		_, err := opened(t, server).SingleFlight("a", time.Minute).Do(context.Background(),
			func(context.Context) ([]byte, error) { return []byte("half"), context.Canceled })
		if err != context.Canceled {
			t.Errorf("it returned %v", err)
		}
		released := fmt.Sprint(server.words("LOCK.RELEASE"), server.calls("lock_release"))
		if strings.Contains(released, "RESULT") || len(server.words("SET")) > 0 || !strings.Contains(released, "a") {
			t.Errorf("it was released with %s", released)
		}
	}
}

// storing is a server without the module that stores a result, and grants the lock when it is asked again.
type storing struct {
	*scripted
	first, then any // what GET replies before and after the wait
	hasWaited   bool
}

func newStoring(first, then any) *storing {
	s := &storing{first: first, then: then}
	script := scriptOnly(func(function string, _ []string, args []any) (any, error) {
		if function == "lock_acquire" && !s.hasWaited {
			s.hasWaited = slices.Contains(args, any("NOTIFY"))
			return somebodyHasIt(args)
		}
		return int64(8), nil
	})
	s.scripted = &scripted{reply: func(words []any) (any, error) {
		if words[0] != "GET" {
			return script.reply(words)
		}
		reply := s.first
		s.first = s.then
		if err, isError := reply.(driver.ReplyError); isError {
			return nil, err
		}
		return reply, nil
	}}
	return s
}

func TestWithoutTheModuleAResultStoredDuringTheWaitCounts(t *testing.T) {
	denied := driver.ReplyError("NOPERM No permissions to access a key")
	for number, one := range []struct {
		first, then any
		want        string
	}{
		{nil, "7 theirs", "theirs"}, {"6 old", []byte("7 theirs"), "theirs"}, {"nonsense", "7 ", ""}, {nil, "7 a b\r\n", "a b\r\n"},
		{nil, nil, "own"}, {"7 old", "7 old", "own"}, {"9 newer", "7 old", "own"}, {nil, "7", "own"}, {nil, "x theirs", "own"},
		{nil, "-7 theirs", "own"}, {nil, "+7 theirs", "own"}, {denied, "7 theirs", "own"}, {nil, denied, "own"},
	} {
		server := newStoring(one.first, one.then)
		locks := opened(t, server)
		subscribe(locks)
		if got := flown(t, locks, "own"); got != one.want {
			t.Errorf("%d: it got %q, not %q", number, got, one.want)
		}
		if asked := server.words("GET"); len(asked) == 0 || asked[0][1] != "a:result:{a}" {
			t.Errorf("%d: it asked %v", number, asked)
		}
		stored, released, cancelled := server.words("SET"), server.calls("lock_release"), server.calls("lock_cancel")
		if one.want != "own" {
			if len(stored)+len(released) > 0 || len(cancelled) != 1 {
				t.Errorf("%d: it stored %q, released %s and cancelled %s", number, stored, released, cancelled)
			}
			continue
		}
		if len(stored) != 1 || fmt.Sprintf("%s %s", stored[0][:3], stored[0][3:4]) != "[SET a:result:{a} 8 own] [PX]" ||
			stored[0][4] != int64(60_000) {
			t.Errorf("%d: it stored %q", number, stored)
		}
		if len(released) != 1 || strings.Contains(released[0], "RESULT") || len(cancelled) > 0 {
			t.Errorf("%d: it released %s and cancelled %s", number, released, cancelled)
		}
	}
}

func TestWithoutTheModuleALockThatWasFreeIsNotLookedUp(t *testing.T) {
	server := scriptOnly(grants)
	locks := opened(t, server)
	flown(t, locks, "own")
	if len(server.words("GET")) > 0 {
		t.Error("it asked what is stored")
	}
	for _, call := range server.calls("lock_acquire") {
		if strings.Contains(call, "RESULT") {
			t.Errorf("it called %s", call)
		}
	}
}

func TestWithoutTheModuleSomeResultsAreNotStored(t *testing.T) {
	long := strings.Repeat("x", longestStored)
	for _, one := range []struct {
		key, own string
		isLost   bool
		stores   int
	}{
		{"a", long, false, 1}, {"a", long + "x", false, 0}, {"a{", "own", false, 0}, {"a", "own", true, 0},
	} {
		server := scriptOnly(grants)
		got, err := opened(t, server).SingleFlight(one.key, time.Minute).Do(context.Background(),
			func(ctx context.Context) ([]byte, error) {
				if one.isLost {
					FromContext(ctx).hold.lose("a test", false)
				}
				return []byte(one.own), nil
			})
		if err != nil || string(got) != one.own {
			t.Errorf("it got %d bytes, %v", len(got), err)
		}
		if stored := len(server.words("SET")); stored != one.stores || len(server.calls("lock_release")) != 1 {
			t.Errorf("%d bytes at %s were stored %d times", len(one.own), one.key, stored)
		}
	}
}
