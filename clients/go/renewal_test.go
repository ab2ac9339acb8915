package serverlock

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"example.com/serverlock/driver"
)

// flakyNode is a server that grants every lock, but whose connection fails for each lock's first EXTENDs.
type flakyNode struct {
	mu    sync.Mutex
	fails map[string]int
}

func (m *flakyNode) Node(context.Context, string) (driver.Node, error) { return m, nil }

func (m *flakyNode) Dial(context.Context) (driver.Conn, error) {
	return nil, errors.New("no dedicated connections")
}

func (m *flakyNode) Exchange(_ context.Context, calls []*driver.Call) {
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

// failuresLeft reports whether every key has this many failures to come.
func (m *flakyNode) failuresLeft(count int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, left := range m.fails {
		if left != count {
			return false
		}
	}
	return true
}

// due counts the holds that the timer checks within the span.
func due(t *timer, span time.Duration) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	count := 0
	for _, one := range t.entries {
		if one.hold != nil && one.number == one.hold.entry && one.at <= now()+span {
			count++
		}
	}
	return count
}

func TestARenewalThatFailsAtOnceIsTriedAgain(t *testing.T) {
	server := &flakyNode{fails: map[string]int{}}
	locks := opened(t, server)
	const lease = 10 * time.Minute
	var all []*Held
	for number := range 300 {
		key := string(rune('a' + number))
		server.mu.Lock()
		server.fails[key] = 4
		server.mu.Unlock()
		held, err := locks.Lock(key, lease).Acquire(context.Background())
		mustNot(t, err)
		all = append(all, held)
	}
	suspend(lease / 3)
	// A retry follows each failure within a twentieth of the lease, so the fifth is in time.
	for left := 3; left >= 0; left-- {
		eventually(t, "all have failed and are scheduled again", func() bool {
			return server.failuresLeft(left) && due(locks.engine.timer, lease/20) == len(all)
		})
		suspend(lease / 20)
	}
	renewed := func() bool {
		for _, held := range all {
			if held.Left() < lease*4/5 {
				return false
			}
		}
		return true
	}
	eventually(t, "all are renewed", renewed)
}
