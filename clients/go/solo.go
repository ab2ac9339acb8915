package serverlock

import (
	"context"
	"sync"
)

// solo is the one line on which the only wait of a manager blocks: one round trip, where NOTIFY takes two and a message.
//
// It is for processes that do one thing at a time. From the second attempt that waits at the same time on, all attempts
// wait by NOTIFY. While the line is open, calls keep to one connection of the pool, so that there are never more than
// three in all; a crowd of calls ends it too.
type solo struct {
	engine *engine

	mu      sync.Mutex
	line    *line
	isTaken bool
	isUsed  bool // calls are narrowed for it
	isOver  bool // a second attempt has waited
}

// isReady reports whether an attempt may begin on it: the line is open, and nobody waits.
func (s *solo) isReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.isTaken && !s.isOver && s.line != nil && s.line.isOpen()
}

// enter reports whether the caller waits alone. If so, the line is its own until leave.
func (s *solo) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isTaken || s.isOver || !s.isUsed && !s.engine.router.narrow(s.end) {
		return false
	}
	s.isTaken, s.isUsed = true, true
	return true
}

func (s *solo) hasEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isOver
}

// take gives the line to the attempt that has entered.
func (s *solo) take(ctx context.Context, key string) (*line, error) {
	s.mu.Lock()
	kept := s.line
	s.mu.Unlock()
	if kept != nil && kept.isOpen() {
		return kept, nil
	}
	made, err := s.engine.router.dial(ctx, key, s.engine.timeout)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.line = made
	s.mu.Unlock()
	if s.engine.isClosed() { // close came before the line
		made.close()
	}
	return made, nil
}

func (s *solo) leave() {
	s.mu.Lock()
	s.isTaken = false
	isOver := s.isOver
	s.mu.Unlock()
	if isOver {
		s.end()
	}
}

// end: others wait or call. An attempt that blocks on the line does so to the end of its piece.
func (s *solo) end() {
	s.mu.Lock()
	s.isOver = true
	if s.isTaken {
		s.mu.Unlock()
		return
	}
	line, wasUsed := s.line, s.isUsed
	s.line, s.isUsed = nil, false
	s.mu.Unlock()
	if line != nil {
		line.close()
	}
	if wasUsed {
		s.engine.router.widen()
	}
}

// close ends the wait as well.
func (s *solo) close() {
	s.mu.Lock()
	s.isOver = true
	line := s.line
	s.mu.Unlock()
	if line != nil {
		line.close()
	}
}
