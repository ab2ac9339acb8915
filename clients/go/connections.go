package serverlock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const maxConnections = 8

// connections are a few dedicated connections that attempts take in turn for blocking waits, and for WAIT after a
// grant.
type connections struct {
	engine  *engine
	turns   chan struct{}
	waiting atomic.Int32
	mu      sync.Mutex
	idle    []*connection
}

func newConnections(e *engine) *connections {
	return &connections{engine: e, turns: make(chan struct{}, maxConnections)}
}

func (c *connections) hasWaiters() bool { return c.waiting.Load() > 0 }

// take returns a connection, or nil if none became free in time, or if ctx or the manager is done.
func (c *connections) take(ctx context.Context, key string, timeout time.Duration) (*connection, error) {
	select {
	case c.turns <- struct{}{}:
	default:
		if !c.turn(ctx, timeout) {
			return nil, nil
		}
	}
	// A cluster keeps none: the next key may be on another server.
	if kept := c.kept(); kept != nil {
		return kept, nil
	}
	conn, err := c.engine.router.dial(ctx, key, c.engine.timeout)
	if err != nil {
		<-c.turns
		return nil, err
	}
	return conn, nil
}

func (c *connections) turn(ctx context.Context, timeout time.Duration) bool {
	c.waiting.Add(1)
	defer c.waiting.Add(-1)
	timer := c.engine.clock.NewTimer(timeout)
	defer timer.Stop()
	select {
	case c.turns <- struct{}{}:
		return true
	case <-timer.C():
	case <-ctx.Done():
	case <-c.engine.closed:
	}
	return false
}

func (c *connections) kept() *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.idle) > 0 {
		last := c.idle[len(c.idle)-1]
		c.idle = c.idle[:len(c.idle)-1]
		if last.isOpen() {
			return last
		}
	}
	return nil
}

func (c *connections) giveBack(back *connection) {
	c.mu.Lock()
	keeps := back.isOpen() && !c.engine.router.isCluster() && !c.engine.isClosed()
	if keeps {
		c.idle = append(c.idle, back)
	}
	c.mu.Unlock()
	if !keeps {
		back.close()
	}
	<-c.turns
}

func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.idle {
		conn.close()
	}
	c.idle = nil
}
