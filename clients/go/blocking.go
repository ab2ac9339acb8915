package serverlock

import (
	"context"
	"sync"
)

// blocking is the dedicated connection on which a manager's only waiter blocks. That takes one round trip, where
// NOTIFY takes two and a message.
//
// It is meant for processes that do one thing at a time. As soon as a second attempt is waiting too, all
// attempts wait with NOTIFY. While the connection is open, calls use one pool connection, so there are never more than
// three connections in all. Queued calls also close this connection.
type blocking struct {
	engine *engine

	mu      sync.Mutex
	conn    *connection
	isTaken bool
	isUsed  bool // the pipeline is narrowed for it
	isOver  bool // a second attempt has waited
}

// isReady reports whether an attempt can start on the connection: it is open, and nobody is waiting.
func (s *blocking) isReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.isTaken && !s.isOver && s.conn != nil && s.conn.isOpen()
}

// enter reports whether the caller is the only waiter. If so, it owns the connection until it calls leave.
func (s *blocking) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isTaken || s.isOver || !s.isUsed && !s.engine.router.narrow(s.end) {
		return false
	}
	s.isTaken, s.isUsed = true, true
	return true
}

func (s *blocking) hasEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isOver
}

// take returns the connection to the attempt that has entered.
func (s *blocking) take(ctx context.Context, key string) (*connection, error) {
	s.mu.Lock()
	kept := s.conn
	s.mu.Unlock()
	if kept != nil && kept.isOpen() {
		return kept, nil
	}
	conn, err := s.engine.router.dial(ctx, key, s.engine.timeout)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.conn = conn
	s.mu.Unlock()
	if s.engine.isClosed() { // closed in the meantime
		conn.close()
	}
	return conn, nil
}

func (s *blocking) leave() {
	s.mu.Lock()
	s.isTaken = false
	isOver := s.isOver
	s.mu.Unlock()
	if isOver {
		s.end()
	}
}

// end closes the connection because others are waiting or calling. An attempt blocking on it finishes its piece first.
func (s *blocking) end() {
	s.mu.Lock()
	s.isOver = true
	if s.isTaken {
		s.mu.Unlock()
		return
	}
	conn, wasUsed := s.conn, s.isUsed
	s.conn, s.isUsed = nil, false
	s.mu.Unlock()
	if conn != nil {
		conn.close()
	}
	if wasUsed {
		s.engine.router.widen()
	}
}

// close also ends a wait.
func (s *blocking) close() {
	s.mu.Lock()
	s.isOver = true
	conn := s.conn
	s.mu.Unlock()
	if conn != nil {
		conn.close()
	}
}
