package serverlock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const mostLines = 8

// lines are a few connections for calls that need one to themselves: blocking waits, and WAIT behind a grant.
type lines struct {
	engine  *engine
	turns   chan struct{}
	waiting atomic.Int32
	mu      sync.Mutex
	idle    []*line
}

func newLines(e *engine) *lines {
	return &lines{engine: e, turns: make(chan struct{}, mostLines)}
}

func (l *lines) isCrowded() bool { return l.waiting.Load() > 0 }

// take gives a line, or nil when none came free in time, or ctx or the manager is done.
func (l *lines) take(ctx context.Context, key string, timeout time.Duration) (*line, error) {
	select {
	case l.turns <- struct{}{}:
	default:
		if !l.turn(ctx, timeout) {
			return nil, nil
		}
	}
	// In a cluster each key has its own server: a line kept for another one would be of no use.
	if kept := l.kept(); kept != nil {
		return kept, nil
	}
	made, err := l.engine.router.dial(ctx, key, l.engine.timeout)
	if err != nil {
		<-l.turns
		return nil, err
	}
	return made, nil
}

func (l *lines) turn(ctx context.Context, timeout time.Duration) bool {
	l.waiting.Add(1)
	defer l.waiting.Add(-1)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case l.turns <- struct{}{}:
		return true
	case <-timer.C:
	case <-ctx.Done():
	case <-l.engine.closed:
	}
	return false
}

func (l *lines) kept() *line {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.idle) > 0 {
		last := l.idle[len(l.idle)-1]
		l.idle = l.idle[:len(l.idle)-1]
		if last.isOpen() {
			return last
		}
	}
	return nil
}

func (l *lines) giveBack(back *line) {
	l.mu.Lock()
	keeps := back.isOpen() && !l.engine.router.isCluster() && !l.engine.isClosed()
	if keeps {
		l.idle = append(l.idle, back)
	}
	l.mu.Unlock()
	if !keeps {
		back.close()
	}
	<-l.turns
}

func (l *lines) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.idle {
		line.close()
	}
	l.idle = nil
}
