package serverlock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	mrand "math/rand/v2"
	"strings"
	"sync"
	"time"

	"example.com/serverlock/internal/clock"
)

const pingEvery = 3 * time.Second

// subscription is how attempts wait with NOTIFY: one connection that is subscribed to this manager's channel.
// Messages are hints: an attempt asks the server again after a message, and when the connection is lost or restored.
type subscription struct {
	engine  *engine
	channel string

	mu        sync.Mutex
	byID      map[string]*updates
	conn      *connection
	isRunning bool
	isUp      bool
	isRefused bool
}

// updates are the messages and changes that one attempt receives.
type updates struct {
	clock    clock.Clock
	messages chan string
	changed  chan struct{} // the connection has come up or was lost
	mu       sync.Mutex
	again    time.Duration // when to resend the request
}

func newSubscription(e *engine) *subscription {
	digits := make([]byte, 8)
	_, _ = rand.Read(digits) // never fails
	return &subscription{engine: e, channel: "serverlock:" + hex.EncodeToString(digits), byID: map[string]*updates{}}
}

// register adds an attempt. The first one opens the connection.
func (s *subscription) register(id, key string) *updates {
	update := &updates{clock: s.engine.clock, messages: make(chan string, 16), changed: make(chan struct{}, 1), again: Forever}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byID[id] = update
	if !s.isRunning {
		s.isRunning = true
		go s.listen(key)
	}
	return update
}

func (s *subscription) unregister(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, id)
}

func (s *subscription) state() (isUp, isRefused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isUp, s.isRefused
}

// ready waits until the connection is subscribed, or the server has refused.
func (s *subscription) ready(ctx context.Context, mine *updates, timeout time.Duration) (isUp, isRefused bool) {
	end := after(s.engine.now(), timeout)
	for {
		isUp, isRefused = s.state()
		left := end - s.engine.now()
		if isUp || isRefused || left <= 0 || ctx.Err() != nil || s.engine.isClosed() {
			return isUp, isRefused
		}
		mine.wait(ctx, s.engine.closed, left)
	}
}

func (s *subscription) close() {
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	if conn != nil {
		conn.close()
	}
}

func (s *subscription) listen(key string) {
	const shortest, longest = 50 * time.Millisecond, time.Second
	span := shortest
	for !s.engine.isClosed() {
		conn, err := s.subscribed(key)
		if err == nil {
			span = shortest
			s.watch(conn)
			if !s.engine.isClosed() {
				s.engine.warn("the connection for waiting was lost; opening a new one")
			}
		} else if reply, ok := as[*replyError](err); ok && !isTransient(reply) {
			s.refused()
			return
		} else if s.engine.router.isCluster() {
			ctx, cancel := context.WithTimeout(context.Background(), s.engine.timeout)
			_ = s.engine.router.refresh(ctx)
			cancel()
		}
		s.down()
		s.engine.pause(context.Background(), span)
		span = min(longest, 2*span)
	}
}

func (s *subscription) subscribed(key string) (*connection, error) {
	conn, err := s.engine.router.dial(context.Background(), key, s.engine.timeout)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.conn = conn
	s.mu.Unlock()
	if s.engine.isClosed() { // closed in the meantime
		conn.close()
	}
	if err := conn.subscribe(s.channel, s.engine.timeout, s.pass); err != nil {
		conn.close()
		return nil, err
	}
	s.mu.Lock()
	s.isUp = true
	s.mu.Unlock()
	s.sendAgain()
	return conn, nil
}

// watch returns when the connection has ended. PING detects a network that drops everything.
func (s *subscription) watch(conn *connection) {
	timer := s.engine.clock.NewTimer(pingEvery)
	defer timer.Stop()
	for {
		select {
		case <-conn.ended:
			return
		case <-timer.C():
			timer.Reset(pingEvery)
			if _, err := conn.call(context.Background(), []any{"PING"}, s.engine.timeout); err != nil {
				conn.close()
				return
			}
		}
	}
}

// sendAgain makes all attempts resend their requests, spread over a second.
func (s *subscription) sendAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, update := range s.byID {
		at := s.engine.now()
		if len(s.byID) > 1 {
			at += mrand.N(time.Second)
		}
		update.mu.Lock()
		update.again = min(update.again, at)
		update.mu.Unlock()
		update.wake()
	}
}

func (s *subscription) down() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isUp, s.conn = false, nil
	for _, update := range s.byID {
		update.wake()
	}
}

func (s *subscription) refused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isRefused, s.isRunning = true, false
	for _, update := range s.byID {
		update.wake()
	}
}

// pass delivers a message: "granted <id> <key>".
func (s *subscription) pass(message string) {
	kind, rest, _ := strings.Cut(message, " ")
	id, _, _ := strings.Cut(rest, " ")
	s.mu.Lock()
	defer s.mu.Unlock()
	if update := s.byID[id]; update != nil {
		select {
		case update.messages <- kind:
		default: // it has unread messages that make it ask again
		}
	}
}

func (n *updates) wake() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

func (n *updates) retryAt() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.again
}

// reset drops the messages that arrived before a new request, because they do not apply to it.
func (n *updates) reset() {
	for len(n.messages) > 0 {
		<-n.messages
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.again = Forever
}

// wait returns the next message. It returns "" after the timeout, if the caller or the manager is done, or if the
// connection has changed.
func (n *updates) wait(ctx context.Context, closed <-chan struct{}, timeout time.Duration) string {
	timer := n.clock.NewTimer(timeout)
	defer timer.Stop()
	select {
	case kind := <-n.messages:
		return kind
	case <-n.changed:
	case <-timer.C():
	case <-ctx.Done():
	case <-closed:
	}
	return ""
}
