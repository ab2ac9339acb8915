package serverlock

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"example.com/serverlock/driver"
)

// sessions are the connections of session locks. Those of one caller share a connection, so the server sees a
// client that holds one lock and waits for another, and finds deadlocks.
//
// The locks of a caller are those of a [SessionLocks], or else those held in the scopes around a call. A goroutine that
// was started in a scope is inside that scope too. Two of them may wait for each other's locks without a deadlock, so
// the call does not use a connection that has any lock from elsewhere.
//
// One attempt at a time uses a connection; meanwhile, another attempt by the same caller gets a new one. A connection
// is closed with its last lock, and its end loses all of its locks.
type sessions struct {
	engine *engine
	mu     sync.Mutex
	all    map[*session]struct{}
}

// session is a connection and the locks that end with it. Only the attempt that has taken it may call.
type session struct {
	*connection
	server  driver.Node
	group   *SessionLocks
	pending chan struct{} // closed once the reply to an abandoned call has arrived; otherwise nil

	// The mutex of sessions guards these.
	holds    []*hold
	isTaken  bool
	hasEnded bool
}

func newSessions(e *engine) *sessions {
	return &sessions{engine: e, all: map[*session]struct{}{}}
}

// call sends a command and waits for the reply. If ctx is done first, the connection stays open, because it may have
// other locks. Its reply is still read; if none comes in time, the connection is closed.
func (s *session) call(ctx context.Context, words []any, timeout time.Duration) (any, error) {
	if ctx.Done() == nil {
		return s.connection.call(ctx, words, timeout)
	}
	var reply any
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		reply, err = s.connection.call(context.WithoutCancel(ctx), words, timeout)
	}()
	select {
	case <-done:
		return reply, err
	case <-ctx.Done():
		s.pending = done
		return nil, &abandoned{settled: done}
	}
}

// take returns a connection of the caller to the server that has the key, or a new one. The attempt ends its use with
// keep or giveBack. The error is a replyError or connectionLost.
func (s *sessions) take(ctx context.Context, r *request) (*session, error) {
	dialing, cancel := context.WithTimeout(ctx, s.engine.timeout)
	defer cancel()
	server, err := s.engine.router.client.Node(dialing, r.key())
	if err != nil {
		return nil, read(err)
	}
	if found := s.takeIdle(ctx, r.group, server); found != nil {
		return found, nil
	}
	conn, err := s.engine.router.dialNode(dialing, server)
	if err != nil {
		return nil, err
	}
	fresh := &session{connection: conn, server: server, group: r.group, isTaken: true}
	s.mu.Lock()
	s.all[fresh] = struct{}{}
	if r.group != nil {
		r.group.own = append(r.group.own, fresh)
	}
	s.mu.Unlock()
	conn.whenEnded(func() { s.ended(fresh) })
	if s.engine.isClosed() { // closed in the meantime
		conn.close()
	}
	return fresh, nil
}

func (s *sessions) takeIdle(ctx context.Context, group *SessionLocks, server driver.Node) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.inScopes(ctx)
	if group != nil {
		known = group.own
	}
	for _, one := range known {
		if one.server == server && !one.isTaken && one.isOpen() {
			one.isTaken = true
			return one
		}
	}
	return nil
}

// inScopes returns the connections all of whose locks are held in the scopes around a call. The caller holds mu.
func (s *sessions) inScopes(ctx context.Context) []*session {
	var around []*hold
	for one := scopeOf(ctx); one != nil; one = one.around {
		around = append(around, one.held.hold)
	}
	isElsewhere := func(h *hold) bool { return !slices.Contains(around, h) }
	var found []*session
	for _, h := range around {
		// A lock that has ended is not among its connection's holds.
		if own := h.session; own != nil && h.engine == s.engine && slices.Contains(own.holds, h) &&
			!slices.ContainsFunc(own.holds, isElsewhere) {
			found = append(found, own)
		}
	}
	return found
}

// keep ends an attempt's use of its connection, which has this lock now.
func (s *sessions) keep(h *hold) {
	s.mu.Lock()
	h.session.holds = append(h.session.holds, h)
	h.session.isTaken = false
	hasEnded := h.session.hasEnded
	s.mu.Unlock()
	if hasEnded {
		h.loseSession()
	}
}

// giveBack ends an attempt's use of its connection: at once, or when the reply to the last call has arrived.
func (s *sessions) giveBack(used *session) {
	if used.pending == nil {
		s.endUse(used)
		return
	}
	s.mu.Lock()
	isShared := len(used.holds) > 0
	s.mu.Unlock()
	if !isShared {
		used.close()
	}
	go func() {
		<-used.pending
		used.pending = nil
		s.endUse(used)
	}()
}

func (s *sessions) endUse(used *session) {
	s.mu.Lock()
	used.isTaken = false
	s.mu.Unlock()
	s.closeUnused(used)
}

// drop removes a lock that has ended from its connection.
func (s *sessions) drop(h *hold) {
	s.mu.Lock()
	h.session.holds = slices.DeleteFunc(h.session.holds, func(one *hold) bool { return one == h })
	s.mu.Unlock()
	s.closeUnused(h.session)
}

func (s *sessions) closeUnused(one *session) {
	s.mu.Lock()
	isUnused := !one.isTaken && len(one.holds) == 0
	if isUnused {
		s.forget(one)
	}
	s.mu.Unlock()
	if isUnused {
		one.close()
	}
}

// ended is called once for each connection.
func (s *sessions) ended(one *session) {
	s.mu.Lock()
	one.hasEnded = true
	holds := slices.Clone(one.holds)
	s.forget(one)
	s.mu.Unlock()
	for _, h := range holds {
		h.loseSession()
	}
}

// forget removes a connection, so that nobody takes it. The caller holds mu.
func (s *sessions) forget(one *session) {
	delete(s.all, one)
	if one.group != nil {
		one.group.own = slices.DeleteFunc(one.group.own, func(other *session) bool { return other == one })
	}
}

func (s *sessions) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

func (s *sessions) close() {
	s.mu.Lock()
	open := slices.Collect(maps.Keys(s.all))
	s.mu.Unlock()
	for _, one := range open {
		one.close()
	}
}
