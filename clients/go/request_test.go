package serverlock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"example.com/serverlock/driver"
)

// nobody is a client that must not be used.
type nobody struct{ t *testing.T }

func (n nobody) Node(context.Context, string) (driver.Node, error) {
	n.t.Error("something was sent")
	return nil, io.EOF
}

func TestOptionsBecomeWords(t *testing.T) {
	locks := New(nobody{t})
	for _, one := range []struct {
		got  *call
		want []any
	}{
		{
			locks.Lock("a", 1500*time.Millisecond, Owner("bob"), Session(), Details()).request.acquire("7", 0, ""),
			[]any{"LOCK.ACQUIRE", "a", "PX", int64(1500), "ID", "7", "OWNER", "bob", "SESSION", "DETAILS"},
		}, {
			locks.Limit("a", 3, 2*time.Second, NoOwner()).request.acquire("7", 500*time.Millisecond, "channel"),
			[]any{"LOCK.ACQUIRE", "a", "PX", int64(2000), "ID", "7", "LIMIT", int64(3), "WAIT", int64(500), "NOTIFY", "channel"},
		}, {
			locks.Shared("a", time.Second, NoOwner(), Wait(Forever)).request.acquire("7", Forever, "channel"),
			[]any{"LOCK.ACQUIRE", "a", "PX", int64(1000), "ID", "7", "SHARED", "WAIT", int64(3_600_000), "NOTIFY", "channel"},
		}, {
			locks.AllOf([]string{"a", "b"}, time.Second, NoOwner(), Details()).request.acquire("7", time.Nanosecond, ""),
			[]any{"LOCK.MACQUIRE", int64(2), "a", "b", "PX", int64(1000), "ID", "7", "WAIT", int64(1)},
		}, {
			locks.AllOf([]string{"a", "b"}, time.Second).request.extend(5, 10*time.Second),
			[]any{"LOCK.MEXTEND", int64(2), "a", "b", int64(5), "PX", int64(10_000)},
		}, {
			locks.AllOf([]string{"a", "b"}, time.Second).request.release(5),
			[]any{"LOCK.MRELEASE", int64(2), "a", "b", int64(5)},
		}, {
			locks.Recover("a", time.Second, NoOwner(), Wait(time.Hour), Details()).request.acquire("7", 0, ""),
			[]any{"LOCK.RECOVER", "a", "PX", int64(1000), "ID", "7"},
		},
	} {
		if got := one.got.words(); !reflect.DeepEqual(got, one.want) {
			t.Errorf("%v\nis not\n%v", got, one.want)
		}
	}
	several := locks.AllOf([]string{"a", "b"}, time.Second).request
	if several.wasHeld(int64(1)) || !several.wasHeld(int64(2)) {
		t.Error("releasing two held keys must return 2")
	}
}

func TestABadArgumentIsNamedAndNothingIsSent(t *testing.T) {
	locks := New(nobody{t})
	for want, lock := range map[string]*Lock{
		"lease is 0s":                    locks.Lock("a", 0),
		"lease is 1µs":                   locks.Lock("a", time.Microsecond),
		"lease is 96360h":                locks.Lock("a", 11*365*24*time.Hour),
		"wait is -1ns":                   locks.Lock("a", time.Second, Wait(-1)),
		"atLeast is -1s":                 locks.Lock("a", time.Second, AtLeast(-time.Second)),
		"maxHold is -1s":                 locks.Lock("a", time.Second, MaxHold(-time.Second)),
		"within is 0s":                   locks.Lock("a", time.Second, Replicas(1, 0)),
		"replicas is -1":                 locks.Lock("a", time.Second, Replicas(-1, time.Second)),
		`owner is "two words"`:           locks.Lock("a", time.Second, Owner("two words")),
		`owner is ""`:                    locks.Lock("a", time.Second, Owner("")),
		"n is 0":                         locks.Limit("a", 0, time.Second),
		"n is 4097":                      locks.Limit("a", 4097, time.Second),
		"keys is empty":                  locks.AllOf(nil, time.Second),
		"keys has the same key twice":    locks.AllOf([]string{"a", "a"}, time.Second),
		"keys are 1025, more than 1024":  locks.AllOf(make([]string, 1025), time.Second),
		"a key is longer than 4096 byte": locks.Lock(strings.Repeat("a", 4097), time.Second),
	} {
		_, err := lock.Acquire(context.Background())
		mustKind(t, err, ErrArgument)
		if !strings.Contains(err.Error(), want) || len(err.Error()) > 400 {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if found := New(nobody{t}, WithTimeout(-1)); found.engine.timeout != 5*time.Second {
		t.Error("a time-out below 0")
	}
}

func TestWhatErrorsMean(t *testing.T) {
	for _, one := range []struct {
		err         error
		isTransient bool
		kind        error
	}{
		{driver.ReplyError("LOADING a file"), true, ErrUnavailable},
		{driver.ReplyError("BUSY running a script"), true, ErrUnavailable},
		{driver.ReplyError("MISCONF no disk"), true, ErrUnavailable},
		{driver.ReplyError("TRYAGAIN moving"), true, ErrUnavailable},
		{driver.ReplyError("CLUSTERDOWN no"), true, ErrUnavailable},
		{driver.ReplyError("MASTERDOWN no"), true, ErrUnavailable},
		{driver.ReplyError("READONLY no"), true, ErrUnavailable},
		{driver.ReplyError("MOVED 1 x"), true, ErrUnavailable},
		{driver.ReplyError("ASK 1 x"), true, ErrUnavailable},
		{driver.ReplyError("UNBLOCKED by somebody"), true, ErrUnavailable},
		{driver.ReplyError("OOM full"), true, ErrUnavailable},
		{driver.ReplyError("NOREPLICAS too few"), true, ErrUnavailable},
		{driver.ReplyError("GRACE this server has just started"), true, ErrUnavailable},
		{driver.ReplyError("GRACE lease is longer than 5 ms"), false, ErrUnavailable},
		{driver.ReplyError("BUSYLOCKS lock.max-waiters clients wait"), true, ErrUnavailable},
		{driver.ReplyError("BUSYLOCKS 64 waits for several keys"), false, ErrUnavailable},
		{driver.ReplyError("CLOCK before 2001"), false, ErrUnavailable},
		{driver.ReplyError("ERR unknown command 'LOCK.ACQUIRE'"), false, ErrUnavailable},
		{driver.ReplyError("DEADLOCK a cycle"), false, ErrDeadlock},
		{driver.ReplyError("NOPERM no"), false, ErrDenied},
		{driver.ReplyError("WRONGPASS no"), false, ErrDenied},
		{fmt.Errorf("dial: %w", driver.ReplyError("NOAUTH no")), false, ErrDenied},
		{driver.ReplyError("WRONGTYPE a list"), false, ErrArgument},
		{driver.ReplyError("lower case"), false, ErrArgument},
		{io.EOF, true, ErrNoServer},
		{context.DeadlineExceeded, true, ErrNoServer},
	} {
		err := read(one.err)
		if isTransient(err) != one.isTransient {
			t.Errorf("%v is transient: %v", one.err, !one.isTransient)
		}
		got := typed(err, `"a"`)
		mustKind(t, got, one.kind)
		if errors.Is(got, context.DeadlineExceeded) {
			t.Errorf("%v looks like the caller's deadline", got)
		}
	}
}
