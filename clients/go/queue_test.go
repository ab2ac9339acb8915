package serverlock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/serverlock/driver"
)

// Attempts and holds on a server without the module: the calls to the script.

// scriptOnly is a server without the module. reply gets a function's name, its keys, and the arguments after them.
func scriptOnly(reply func(function string, keys []string, args []any) (any, error)) *scripted {
	return &scripted{reply: func(words []any) (any, error) {
		switch command := words[0].(string); {
		case command == "INFO":
			return "maxmemory_policy:noeviction", nil
		case command == "SET":
			return "OK", nil
		case strings.HasPrefix(command, "LOCK."):
			return nil, driver.ReplyError("ERR unknown command '" + command + "'")
		}
		return reply(split(words))
	}}
}

func split(words []any) (function string, keys []string, args []any) {
	last := 3 + words[2].(int64)
	for _, key := range words[3:last] {
		keys = append(keys, key.(string))
	}
	return words[last].(string), keys, words[last+3:]
}

// calls returns the calls to a function, as text: its keys, then the options.
func (s *scripted) calls(function string) []string {
	var found []string
	for _, words := range slices.Concat(s.words("EVAL"), s.words("EVALSHA")) {
		if name, keys, args := split(words); name == function {
			found = append(found, fmt.Sprint(keys, args))
		}
	}
	return found
}

// subscribe makes attempts see a subscription that is confirmed. These servers have no connections for a real one.
func subscribe(locks *Locks) {
	subscription := locks.engine.subscription
	subscription.mu.Lock()
	subscription.isUp, subscription.isRunning = true, true
	subscription.mu.Unlock()
	subscription.sendAgain()
}

func grants(string, []string, []any) (any, error) { return int64(1), nil }

func acquired(t *testing.T, lock *Lock) *Held {
	t.Helper()
	held, err := lock.Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return held
}

func TestAKeyHasTheRightQueue(t *testing.T) {
	for key, want := range map[string]string{
		"report": "report:queue:{report}", "": ":queue:{}", "\x00\xff": "\x00\xff:queue:{\x00\xff}",
		"{42}:report": "{42}:report:queue", "a}b{c}": "a}b{c}:queue", "a{{b}": "a{{b}:queue", "{\n\xff}": "{\n\xff}:queue",
		"a{": "", "a}": "", "{}": "", "a{}b{c}": "",
	} {
		if got := queueOf(key); got != want {
			t.Errorf("the queue of %q is %q", key, got)
		}
	}
}

func TestEachScriptCallNamesTheQueues(t *testing.T) {
	server := scriptOnly(grants)
	locks := opened(t, server)
	ctx := context.Background()
	for _, lock := range []*Lock{
		locks.Lock("a", time.Minute), locks.Limit("a", 3, time.Minute, NoOwner()), locks.AllOf([]string{"{b}1", "{b}2"}, time.Minute),
		locks.Recover("a", time.Minute),
	} {
		held := acquired(t, lock)
		_ = held.Extend(ctx, 0)
		_, _ = held.Verify(ctx)
		_ = held.Release(ctx)
	}
	for function, want := range map[string]string{
		"lock_acquire": "[a a:queue:{a}]", "lock_recover": "[a a:queue:{a}]", "lock_extend": "[a a:queue:{a}]",
		"lock_release": "[a a:queue:{a}]", "lock_acquire_all": "[{b}1 {b}2 {b}1:queue {b}2:queue]",
		"lock_extend_all": "[{b}1 {b}2 {b}1:queue {b}2:queue]", "lock_release_all": "[{b}1 {b}2 {b}1:queue {b}2:queue]",
	} {
		calls := server.calls(function)
		if len(calls) == 0 {
			t.Errorf("%s was not called", function)
		}
		for _, call := range calls {
			if !strings.HasPrefix(call, want) {
				t.Errorf("%s was called with %s", function, call)
			}
		}
	}
	if call := server.calls("lock_acquire")[1]; !strings.HasSuffix(call, " LIMIT 3]") {
		t.Errorf("a limit is requested with %s", call)
	}
	checks := server.calls("lock_check")
	if !slices.Contains(checks, "[{b}1 {b}1:queue] [1]") || !slices.Contains(checks, "[{b}2 {b}2:queue] [1]") {
		t.Errorf("several keys are checked with %s", checks)
	}
}

func TestAnAttemptAsksAgainWhenTheScriptSays(t *testing.T) {
	asks := 0
	server := scriptOnly(func(function string, keys []string, args []any) (any, error) {
		if asks++; asks == 200 {
			return []any{int64(9), nil, nil, nil}, nil
		}
		return []any{"WAITING", int64(asks % 2)}, nil
	})
	locks := opened(t, server)
	subscribe(locks)
	held := acquired(t, locks.Lock("a", time.Minute, Details(), Wait(10*resend)))
	if held.Token() != 9 {
		t.Errorf("the token is %d", held.Token())
	}
	calls := server.calls("lock_acquire")
	if !strings.Contains(calls[0], "DETAILS WAIT ") || !strings.Contains(calls[0], " NOTIFY serverlock:") {
		t.Errorf("it called %s", calls)
	}
}

// A release would find no subscriber, and pass over an attempt that is in the queue already.
func TestAnAttemptJoinsTheQueueOnceItIsSubscribed(t *testing.T) {
	for _, wasLoaded := range []bool{false, true} {
		isLoaded := wasLoaded
		server := scriptOnly(func(function string, _ []string, args []any) (any, error) {
			if function == "lock_acquire" && !slices.Contains(args, any("NOTIFY")) {
				return nil, nil
			}
			return int64(1), nil
		})
		byScript := server.reply
		server.reply = func(words []any) (any, error) {
			switch {
			case !isLoaded || words[0] != "LOCK.ACQUIRE":
				return byScript(words)
			case slices.Contains(words, any("NOTIFY")):
				isLoaded = false // the attempt is in the queue of a server that is gone
				return "WAITING", nil
			}
			return nil, nil
		}
		locks := opened(t, server)
		locks.engine.blocking.end()                // it waits for messages
		locks.engine.subscription.isRunning = true // which is not confirmed yet
		done := make(chan error, 1)
		go func() {
			_, err := locks.Lock("a", time.Minute, Wait(time.Hour)).Acquire(context.Background())
			done <- err
		}()
		joins := func() int {
			return strings.Count(fmt.Sprint(server.calls("lock_acquire")), "NOTIFY")
		}
		eventually(t, "it asks again and again", func() bool {
			return len(server.calls("lock_acquire")) >= 3 || joins() > 0
		})
		if joins() != 0 {
			t.Errorf("with the module %v, it called %s", wasLoaded, server.calls("lock_acquire"))
		}
		subscribe(locks)
		if err := <-done; err != nil || joins() != 1 {
			t.Errorf("with the module %v, it joined %d times: %v", wasLoaded, joins(), err)
		}
	}
}

func TestAnAttemptThatTimesOutLeavesTheQueue(t *testing.T) {
	server := scriptOnly(func(_ string, _ []string, args []any) (any, error) { return somebodyHasIt(args) })
	locks := opened(t, server)
	subscribe(locks)
	_, err := locks.Limit("a", 2, time.Minute, Wait(50*time.Millisecond)).Acquire(context.Background())
	mustKind(t, err, ErrTimeout)
	calls := server.calls("lock_cancel")
	if len(calls) != 1 || !strings.HasPrefix(calls[0], "[a a:queue:{a}] [ID ") ||
		!strings.HasSuffix(calls[0], " NOTIFY "+locks.engine.subscription.channel+" LIMIT 2]") {
		t.Errorf("it was cancelled with %s", calls)
	}
}

func TestAnAttemptWhoseCallMayStillRunIsCancelledTwice(t *testing.T) {
	var cancelled []time.Duration
	server := scriptOnly(func(function string, _ []string, _ []any) (any, error) {
		if function == "lock_cancel" {
			cancelled = append(cancelled, now())
			return int64(0), nil
		}
		return nil, io.EOF
	})
	locks := opened(t, server)
	_, err := locks.Lock("a", time.Minute).Acquire(context.Background())
	mustKind(t, err, ErrNoServer)
	eventually(t, "it was cancelled twice", func() bool { return len(server.calls("lock_cancel")) == 2 })
	if span := cancelled[1] - cancelled[0]; span < time.Second {
		t.Errorf("it was cancelled again after %v", span)
	}
	// A reader that merges censuses would keep an old count if the name were missing.
	if owed, isNamed := opened(t, server).engine.census()["owed"]; owed != 0 || !isNamed {
		t.Errorf("a census without debts says %d, %v", owed, isNamed)
	}
	eventually(t, "nothing is owed", func() bool { return locks.engine.census()["owed"] == 0 })
}

func TestWithoutPermissionToUseQueuesOnlyTheLockIsSent(t *testing.T) {
	isHeld := true
	server := scriptOnly(func(_ string, keys []string, _ []any) (any, error) {
		switch {
		case len(keys) != 1:
			return nil, driver.ReplyError("NOPERM No permissions to access a key")
		case isHeld:
			return nil, nil
		}
		return int64(1), nil
	})
	locks := opened(t, server)
	twoKeys := func() int {
		return len(slices.DeleteFunc(server.calls("lock_acquire"), func(call string) bool { return !strings.HasPrefix(call, "[a a:") }))
	}
	_, err := locks.Lock("a", time.Minute, Wait(500*time.Millisecond)).Acquire(context.Background())
	mustKind(t, err, ErrTimeout)
	if calls := server.calls("lock_acquire"); len(calls) < 3 || twoKeys() != 1 || strings.Contains(fmt.Sprint(calls), "NOTIFY") {
		t.Errorf("it called %s", calls)
	}
	isHeld = false
	_, err = locks.Shared("s", time.Minute).Acquire(context.Background())
	mustKind(t, err, ErrDenied)
	held := acquired(t, locks.Lock("a", time.Minute))
	if err := held.Release(context.Background()); err != nil || twoKeys() != 1 {
		t.Errorf("after %d calls with two keys: %v", twoKeys(), err)
	}
	suspend(remembersDenial)
	acquired(t, locks.Lock("a", time.Minute))
	if twoKeys() != 2 {
		t.Errorf("the permission was checked %d times", twoKeys())
	}
}

func TestAUserWithoutAnyPermissionDoesNotTurnQueuesOff(t *testing.T) {
	locks := opened(t, scriptOnly(func(string, []string, []any) (any, error) {
		return nil, driver.ReplyError("NOPERM No permissions to access a key")
	}))
	_, err := locks.Lock("a", time.Minute).Acquire(context.Background())
	mustKind(t, err, ErrDenied)
	if locks.engine.portable.isDenied() {
		t.Error("other locks do without queues")
	}
}

func TestWhileASlotIsMovingOnlyTheLockIsSent(t *testing.T) {
	moving := 2
	server := scriptOnly(func(function string, keys []string, args []any) (any, error) {
		switch {
		case len(keys) == 2 && moving > 0:
			moving--
			return nil, driver.ReplyError("TRYAGAIN Multiple keys request during rehashing of slot")
		case function == "lock_acquire" && len(keys) == 1:
			return nil, nil
		}
		return int64(1), nil
	})
	locks := opened(t, server)
	subscribe(locks)
	held := acquired(t, locks.Lock("a", time.Minute, Wait(time.Hour)))
	calls := server.calls("lock_acquire")
	if len(calls) != 5 || strings.Contains(calls[3], "WAIT") || !strings.Contains(calls[4], "WAIT") {
		t.Errorf("it called %s", calls)
	}
	moving = 1
	if err := held.Release(context.Background()); err != nil {
		t.Error(err)
	}
	moving = 1
	acquired(t, locks.Shared("s", time.Minute))
}

// subscriber refuses SUBSCRIBE.
type subscriber struct {
	*scripted
}

func (s subscriber) Node(context.Context, string) (driver.Node, error) { return s, nil }

func (s subscriber) Dial(context.Context) (driver.Conn, error) {
	return &refusingConn{grantingConn{sent: make(chan struct{}, 1), closed: make(chan struct{})}}, nil
}

type refusingConn struct{ grantingConn }

func (r *refusingConn) Receive() (any, error) {
	if _, err := r.grantingConn.Receive(); err != nil {
		return nil, err
	}
	return nil, driver.ReplyError("NOPERM No permissions to access a channel")
}

func TestAnAttemptThatMayNotSubscribePollsWithTheLockAlone(t *testing.T) {
	polls := 0
	server := subscriber{scriptOnly(func(function string, keys []string, args []any) (any, error) {
		if function != "lock_acquire" || polls == 3 {
			return int64(1), nil
		}
		if len(keys) == 1 {
			polls++
		}
		return nil, nil
	})}
	locks := opened(t, server)
	held := acquired(t, locks.Lock("a", time.Minute, Wait(time.Hour)))
	if calls := server.calls("lock_acquire"); !strings.HasPrefix(calls[len(calls)-1], "[a] [PX") {
		t.Errorf("it called %s", calls)
	}
	if err := held.Release(context.Background()); err != nil {
		t.Error(err)
	}
	if calls := server.calls("lock_release"); !strings.HasPrefix(calls[0], "[a a:queue:{a}]") {
		t.Errorf("the release does not notify: %s", calls)
	}
}

func TestAKeyWithABraceButWithoutAHashTagHasNoQueue(t *testing.T) {
	polls := 0
	server := scriptOnly(func(function string, keys []string, args []any) (any, error) {
		if len(keys) != 1 {
			return nil, errors.New("another key")
		}
		polls++
		if function == "lock_acquire" && polls < 4 {
			return nil, nil
		}
		return int64(1), nil
	})
	locks := opened(t, server)
	held := acquired(t, locks.Lock("a{", time.Minute, Wait(time.Hour)))
	if err := held.Release(context.Background()); err != nil {
		t.Error(err)
	}
	for what, lock := range map[string]*Lock{
		"Shared": locks.Shared("a{", time.Minute), "Limit": locks.Limit("a{", 2, time.Minute),
		"AllOf": locks.AllOf([]string{"b", "a{"}, time.Minute),
	} {
		_, err := lock.Acquire(context.Background())
		mustKind(t, err, ErrUnavailable)
		if !strings.Contains(err.Error(), what+" needs the module") || !strings.Contains(err.Error(), "brace but no hash tag") {
			t.Errorf("%s fails with %v", what, err)
		}
	}
}

func TestSeveralKeysPoll(t *testing.T) {
	polls := 0
	server := scriptOnly(func(function string, _ []string, args []any) (any, error) {
		if polls++; function == "lock_acquire_all" && polls < 4 {
			return nil, nil
		}
		return int64(2), nil
	})
	locks := opened(t, server)
	acquired(t, locks.AllOf([]string{"a", "b"}, time.Minute, Wait(time.Hour)))
	if calls := server.calls("lock_acquire_all"); len(calls) != 4 || strings.Contains(fmt.Sprint(calls), "WAIT") {
		t.Errorf("it called %s", calls)
	}
}
