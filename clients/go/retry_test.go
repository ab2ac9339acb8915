package serverlock

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/serverlock/driver"
)

// scripted is a server whose replies the test decides. It accepts no dedicated connections.
type scripted struct {
	reply func(words []any) (any, error)
	mu    sync.Mutex
	sent  [][]any
}

func (s *scripted) Node(context.Context, string) (driver.Node, error) { return s, nil }

func (s *scripted) Dial(context.Context) (driver.Conn, error) {
	return nil, errors.New("no dedicated connections")
}

func (s *scripted) Exchange(_ context.Context, calls []*driver.Call) {
	for _, call := range calls {
		s.mu.Lock()
		s.sent = append(s.sent, call.Words)
		call.Value, call.Err = s.reply(call.Words) // under the mutex: replies may count
		s.mu.Unlock()
	}
}

// words returns the words of each call of a command.
func (s *scripted) words(command string) [][]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.sent), func(words []any) bool { return words[0] != command })
}

func (s *scripted) awaits(t *testing.T, command string, count int) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); len(s.words(command)) < count; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s was sent %d times, not %d", command, len(s.words(command)), count)
		}
	}
}

// flaky grants every lock, but replies with the error to the first calls of a command.
func flaky(command, reply string, times int) *scripted {
	return &scripted{reply: func(words []any) (any, error) {
		if words[0] == command && times > 0 {
			times--
			return nil, driver.ReplyError(reply)
		}
		return int64(1), nil
	}}
}

func opened(t *testing.T, client driver.Client, options ...ManagerOption) *Locks {
	t.Helper()
	options = append([]ManagerOption{WithLogger(slog.New(slog.DiscardHandler))}, options...)
	locks := New(client, options...)
	t.Cleanup(locks.Close)
	return locks
}

const always = 1 << 30

// somebodyHasIt is the script's reply while somebody else has the lock. args are the options.
func somebodyHasIt(args []any) (any, error) {
	if slices.Contains(args, any("NOTIFY")) && slices.Contains(args, any("WAIT")) {
		return []any{"WAITING", int64(20)}, nil
	}
	return nil, nil
}

func TestAnAttemptOutlivesABusyServer(t *testing.T) {
	for _, reply := range []string{"BUSY running a script", "MISCONF no disk", "OOM full", "GRACE this server", "NOREPLICAS no"} {
		server := flaky("LOCK.ACQUIRE", reply, 3)
		held, err := opened(t, server).Lock("a", time.Minute, Wait(time.Minute)).Acquire(context.Background())
		if err != nil {
			t.Errorf("%s: %v", reply, err)
			continue
		}
		sent := server.words("LOCK.ACQUIRE")
		if len(sent) != 4 || held.Token() != 1 || !slices.Equal(sent[0][len(sent[0])-2:], sent[3][len(sent[3])-2:]) {
			t.Errorf("%s: it sent %v", reply, sent)
		}
		server = flaky("LOCK.ACQUIRE", reply, always)
		_, err = opened(t, server).Lock("a", time.Minute).Acquire(context.Background())
		mustKind(t, err, ErrUnavailable)
		if sent := len(server.words("LOCK.ACQUIRE")); sent != 2 || !strings.Contains(err.Error(), reply) {
			t.Errorf("%s: it was sent %d times: %v", reply, sent, err)
		}
		_, err = opened(t, server).Lock("a", time.Minute, Wait(50*time.Millisecond)).Acquire(context.Background())
		mustKind(t, err, ErrTimeout)
	}
	for _, reply := range []string{"GRACE lease is longer", "BUSYLOCKS 64 waits for several", "CLOCK before 2001"} {
		server := flaky("LOCK.ACQUIRE", reply, always)
		_, err := opened(t, server).Lock("a", time.Minute, Wait(time.Minute)).Acquire(context.Background())
		mustKind(t, err, ErrUnavailable)
		if sent := len(server.words("LOCK.ACQUIRE")); sent != 1 {
			t.Errorf("%s: it was sent %d times", reply, sent)
		}
	}
}

func TestReleaseAndCancelContinueInTheBackgroundOnABusyServer(t *testing.T) {
	for _, atLeast := range []time.Duration{0, time.Second} {
		server := flaky("LOCK.RELEASE", "MISCONF no disk", 6)
		if atLeast == time.Second {
			server = flaky("LOCK.EXTEND", "BUSY running a script", always)
		}
		locks := opened(t, server, WithTimeout(50*time.Millisecond))
		held, err := locks.Lock("a", 10*time.Minute, AtLeast(atLeast)).Acquire(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if err := held.Release(context.Background()); err != nil {
			t.Errorf("at least %v: release returned %v", atLeast, err)
		}
		count := 7
		if atLeast == time.Second {
			count = 1
		}
		server.awaits(t, "LOCK.RELEASE", count)
	}
	busy := 3
	server := &scripted{}
	server.reply = func(words []any) (any, error) {
		if words[0] == "LOCK.CANCEL" && busy == 0 {
			return int64(1), nil
		}
		if words[0] == "LOCK.CANCEL" {
			busy--
		}
		return nil, driver.ReplyError("BUSY running a script")
	}
	_, err := opened(t, server).Lock("a", 10*time.Minute).Acquire(context.Background())
	mustKind(t, err, ErrUnavailable)
	server.awaits(t, "LOCK.CANCEL", 4)
}

func TestAnAttemptMovesToTheModuleOnceItIsLoaded(t *testing.T) {
	isLoaded := false
	var asked []time.Duration
	server := &scripted{}
	server.reply = func(words []any) (any, error) {
		command, _ := words[0].(string)
		switch {
		case command == "INFO":
			return "maxmemory_policy:noeviction", nil
		case !strings.HasPrefix(command, "LOCK."):
			return somebodyHasIt(words)
		}
		asked = append(asked, now())
		if isLoaded {
			return int64(7), nil
		}
		return nil, driver.ReplyError("ERR unknown command 'LOCK.ACQUIRE', with args beginning with: 'a'")
	}
	var log bytes.Buffer
	locks := opened(t, server, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	type result struct {
		held *Held
		err  error
	}
	done := make(chan result)
	go func() {
		held, err := locks.Lock("a", time.Minute, Wait(24*time.Hour)).Acquire(context.Background())
		done <- result{held, err}
	}()
	server.awaits(t, "EVALSHA", 2)
	suspend(askForModule)
	server.awaits(t, "LOCK.ACQUIRE", 2) // still not loaded
	asks := len(server.words("EVALSHA"))
	server.awaits(t, "EVALSHA", asks+2)
	server.mu.Lock()
	isLoaded = true
	server.mu.Unlock()
	suspend(askForModule)
	select {
	case got := <-done:
		if got.err != nil || got.held.Token() != 7 {
			t.Fatalf("it got %v, %v", got.held, got.err)
		}
	case <-time.After(60 * time.Second):
		t.Fatal("it went on with the script")
	}
	for i, at := range asked[1:] {
		if at-asked[i] < askForModule {
			t.Errorf("the module was tried again after %v", at-asked[i])
		}
	}
	ids := map[any]bool{}
	for _, words := range slices.Concat(server.words("LOCK.ACQUIRE"), server.words("EVALSHA")) {
		at := slices.Index(words, any("ID"))
		ids[words[at+1]] = true
	}
	if len(ids) != 1 {
		t.Errorf("the attempt had the IDs %v", ids)
	}
	if warnings := strings.Count(log.String(), "the server has no LOCK"); warnings != 1 {
		t.Errorf("the log has %d warnings:\n%s", warnings, &log)
	}
}

func TestAnAttemptCancelledWhileItAsksForTheModuleIsWithdrawnWithTheScript(t *testing.T) {
	asked, goOn := make(chan struct{}), make(chan struct{})
	server := &scripted{reply: func(words []any) (any, error) {
		switch words[0] {
		case "LOCK.ACQUIRE":
			close(asked)
			<-goOn
			fallthrough
		case "LOCK.CANCEL":
			return nil, driver.ReplyError("ERR unknown command")
		}
		return nil, nil
	}}
	locks := opened(t, server)
	ctx, giveUp := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		_, err := locks.Lock("a", time.Minute).Acquire(ctx)
		done <- err
	}()
	<-asked
	giveUp()
	mustKind(t, <-done, context.Canceled)
	close(goOn) // only now: an attempt that has its reply leaves nothing to cancel
	server.awaits(t, "EVAL", 1)
	eventually(t, "nothing is owed", func() bool { return locks.engine.census()["owed"] == 0 })
	if cancels := len(server.words("LOCK.CANCEL")); cancels != 1 {
		t.Errorf("LOCK.CANCEL was sent %d times", cancels)
	}
}

func TestTheWarningAboutAMissingModuleCanBeTurnedOff(t *testing.T) {
	server := &scripted{reply: func(words []any) (any, error) {
		if strings.HasPrefix(words[0].(string), "LOCK.") {
			return nil, driver.ReplyError("ERR unknown command 'LOCK.ACQUIRE'")
		}
		return int64(1), nil
	}}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	if _, err := New(server, WithLogger(logger), WarnWithoutModule(false)).Lock("a", time.Minute).Acquire(context.Background()); err != nil {
		t.Fatal(err)
	}
	if log.Len() > 0 {
		t.Errorf("the log has %s", &log)
	}
}
