package locktest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"example.com/serverlock"
)

const lease = 30 * time.Second

var ctx = context.Background()

// locksOf returns the Locks of another process.
func locksOf(t *testing.T, server *Server) *serverlock.Locks {
	t.Helper()
	locks := server.Locks()
	t.Cleanup(locks.Close)
	return locks
}

func acquire(t *testing.T, lock *serverlock.Lock) *serverlock.Held {
	t.Helper()
	held, err := lock.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// order collects what happens in goroutines.
type order struct {
	mu   sync.Mutex
	seen []string
}

func (o *order) add(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen = append(o.seen, what)
}

func (o *order) want(t *testing.T, want ...string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Equal(o.seen, want) {
		t.Fatalf("%v is not %v", o.seen, want)
	}
}

func (o *order) wantInAnyOrder(t *testing.T, want ...string) {
	t.Helper()
	o.mu.Lock()
	slices.Sort(o.seen)
	o.mu.Unlock()
	slices.Sort(want)
	o.want(t, want...)
}

// wait starts an attempt, and returns once it is in the queue.
func (o *order) wait(t *testing.T, server *Server, name string, lock *serverlock.Lock) {
	t.Helper()
	go func() {
		held, err := lock.Acquire(ctx)
		var ours *serverlock.Error
		if errors.As(err, &ours) {
			o.add(name + " " + ours.Code())
			return
		}
		o.add(name)
		<-held.Done()
		if err := held.Check(); err != nil {
			o.add(name + " over")
		}
	}()
	server.Info("report") // settles
}
