package serverlock

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"example.com/serverlock/driver"
)

// moody is a server that grants every lock, and whose connection fails at once for the first EXTENDs of each.
type moody struct {
	mu    sync.Mutex
	fails map[string]int
}

func (m *moody) Node(context.Context, string) (driver.Node, error) { return m, nil }

func (m *moody) Dial(context.Context) (driver.Conn, error) { return nil, errors.New("no lines") }

func (m *moody) Exchange(_ context.Context, calls []*driver.Call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, call := range calls {
		key := call.Words[1].(string)
		call.Value = int64(1)
		if call.Words[0] == "LOCK.EXTEND" && m.fails[key] > 0 {
			m.fails[key]--
			call.Value, call.Err = nil, io.EOF
		}
	}
}

func TestARenewalThatFailsAtOnceIsTriedAgain(t *testing.T) {
	server := &moody{fails: map[string]int{}}
	locks := New(server, WithLogger(slog.New(slog.DiscardHandler)))
	defer locks.Close()
	const lease = 3 * time.Second
	var all []*Held
	for number := range 300 {
		key := string(rune('a' + number))
		server.mu.Lock()
		server.fails[key] = 4
		server.mu.Unlock()
		held, err := locks.Lock(key, lease).Acquire(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, held)
	}
	time.Sleep(lease) // nothing happens that could be awaited
	lost := 0
	for _, held := range all {
		if held.Check() != nil {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d locks were lost", lost)
	}
}
