package locktest

import (
	"slices"
	"testing"
	"time"

	"example.com/serverlock"
)

func TestALateCopyOfACancelledAttemptGetsNothing(t *testing.T) {
	server := NewServer()
	command := func(words ...any) any {
		reply, err := server.command(nil, words)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	copied := []any{"LOCK.ACQUIRE", "report", "PX", int64(1000), "ID", "7"}
	command("LOCK.CANCEL", "report", "7")
	if reply := command(copied...); reply != nil {
		t.Errorf("it got %v", reply)
	}
	server.Clock.Advance(placeTime)
	if command(copied...) == nil {
		t.Error("the ID stays blocked")
	}
}

func TestAGrantThatNobodyClaimsIsPassedOn(t *testing.T) {
	server := NewServer()
	held := acquire(t, locksOf(t, server).Lock("report", time.Hour))
	reply, err := server.command(nil, []any{"LOCK.ACQUIRE", "report", "PX", int64(1000), "ID", "7", "WAIT", int64(60_000),
		"NOTIFY", "a channel without a subscriber"})
	if reply != "WAITING" || err != nil {
		t.Fatal(reply, err)
	}
	_ = held.Release(ctx)
	if state := server.Info("report").State; state != "held" {
		t.Errorf("before the claim it is %s", state)
	}
	server.Clock.Advance(claimTime)
	if state := server.Info("report").State; state != "free" {
		t.Errorf("without a claim it is %s", state)
	}
}

func TestGoroutinesThatRunOrCallTheSystemForTheEngineAreBusy(t *testing.T) {
	inEngine := slices.Concat([]byte("created by "), engine, []byte("(*timer).owe"))
	for _, one := range []struct {
		state  string
		frames []byte
		want   bool
	}{
		{"running]:", nil, true}, {"runnable]:", nil, true}, {"GC assist wait]:", nil, true},
		{"select]:", inEngine, false}, {"chan receive, 3 minutes]:", nil, false}, {"IO wait]:", nil, false},
		{"sync.Cond.Wait]:", inEngine, false}, {"syscall]:", nil, false}, {"syscall]:", inEngine, true},
	} {
		if isBusy(one.state, one.frames) != one.want {
			t.Errorf("%s %s: not %v", one.state, one.frames, one.want)
		}
	}
}

func TestAServerRefusesOnlyAsAServerCan(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("it refuses a lock as lost")
		}
	}()
	NewServer().Refuse("report", serverlock.ErrLost)
}
