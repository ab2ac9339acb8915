package serverlock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	mrand "math/rand/v2"
	"strings"
	"sync"
	"time"
)

const pingEvery = 3 * time.Second

// subscription is how attempts wait by NOTIFY: one line that is subscribed to the channel of this manager, and who hears
// what. Messages are hints: an attempt asks the server again when it hears something, and when the line is lost or comes
// back.
type subscription struct {
	engine  *engine
	channel string

	mu        sync.Mutex
	byID      map[string]*news
	line      *line
	isRunning bool
	isUp      bool
	isRefused bool
}

// news is what one attempt hears.
type news struct {
	heard chan string
	stir  chan struct{} // something about the line has changed
	mu    sync.Mutex
	again time.Duration // when to ask again after the line came back
}

func newSubscription(e *engine) *subscription {
	digits := make([]byte, 8)
	_, _ = rand.Read(digits) // it never fails
	return &subscription{engine: e, channel: "serverlock:" + hex.EncodeToString(digits), byID: map[string]*news{}}
}

// register opens the line when it is the first.
func (s *subscription) register(id, key string) *news {
	made := &news{heard: make(chan string, 16), stir: make(chan struct{}, 1), again: Forever}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byID[id] = made
	if !s.isRunning {
		s.isRunning = true
		go s.listen(key)
	}
	return made
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

// ready waits until the line is subscribed, or it is clear that it cannot be.
func (s *subscription) ready(ctx context.Context, mine *news, timeout time.Duration) (isUp, isRefused bool) {
	end := after(now(), timeout)
	for {
		isUp, isRefused = s.state()
		left := end - now()
		if isUp || isRefused || left <= 0 || ctx.Err() != nil || s.engine.isClosed() {
			return isUp, isRefused
		}
		mine.wait(ctx, s.engine.closed, left)
	}
}

func (s *subscription) close() {
	s.mu.Lock()
	line := s.line
	s.mu.Unlock()
	if line != nil {
		line.close()
	}
}

func (s *subscription) listen(key string) {
	const shortest, longest = 50 * time.Millisecond, time.Second
	span := shortest
	for !s.engine.isClosed() {
		line, err := s.subscribed(key)
		if err == nil {
			span = shortest
			s.watch(line)
			if !s.engine.isClosed() {
				s.engine.warn("the connection for waiting was lost, and is opened again")
			}
		} else if reply, isSaid := err.(*said); isSaid && !mayPass(reply) {
			s.refused()
			return
		} else if s.engine.router.isCluster() {
			ctx, cancel := context.WithTimeout(context.Background(), s.engine.timeout)
			_ = s.engine.router.refresh(ctx)
			cancel()
		}
		s.down()
		pause(context.Background(), s.engine.closed, span)
		span = min(longest, 2*span)
	}
}

func (s *subscription) subscribed(key string) (*line, error) {
	line, err := s.engine.router.dial(context.Background(), key, s.engine.timeout)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.line = line
	s.mu.Unlock()
	if s.engine.isClosed() { // close came before the line
		line.close()
	}
	if err := line.subscribe(s.channel, s.engine.timeout, s.pass); err != nil {
		line.close()
		return nil, err
	}
	s.mu.Lock()
	s.isUp = true
	s.mu.Unlock()
	s.sendAgain()
	return line, nil
}

// watch returns when the line has ended. A network that swallows everything is noticed by the silence.
func (s *subscription) watch(line *line) {
	ticker := time.NewTicker(pingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-line.ended:
			return
		case <-ticker.C:
			if _, err := line.call(context.Background(), []any{"PING"}, s.engine.timeout); err != nil {
				line.close()
				return
			}
		}
	}
}

// sendAgain has all attempts sent again, within a second: not all at once.
func (s *subscription) sendAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, news := range s.byID {
		at := now()
		if len(s.byID) > 1 {
			at += mrand.N(time.Second)
		}
		news.mu.Lock()
		news.again = min(news.again, at)
		news.mu.Unlock()
		news.stirred()
	}
}

func (s *subscription) down() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isUp, s.line = false, nil
	for _, news := range s.byID {
		news.stirred()
	}
}

func (s *subscription) refused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isRefused, s.isRunning = true, false
	for _, news := range s.byID {
		news.stirred()
	}
}

// pass reads "granted <id> <key>".
func (s *subscription) pass(message string) {
	kind, rest, _ := strings.Cut(message, " ")
	id, _, _ := strings.Cut(rest, " ")
	s.mu.Lock()
	defer s.mu.Unlock()
	if news := s.byID[id]; news != nil {
		select {
		case news.heard <- kind:
		default: // it has more to read than it needs
		}
	}
}

func (n *news) stirred() {
	select {
	case n.stir <- struct{}{}:
	default:
	}
}

func (n *news) againAt() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.again
}

// forget: what was heard before a new call says nothing about it.
func (n *news) forget() {
	for len(n.heard) > 0 {
		<-n.heard
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.again = Forever
}

// wait gives the next message; "": the time is over, the caller or the manager is done, or the line has changed.
func (n *news) wait(ctx context.Context, closed <-chan struct{}, timeout time.Duration) string {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case kind := <-n.heard:
		return kind
	case <-n.stir:
	case <-timer.C:
	case <-ctx.Done():
	case <-closed:
	}
	return ""
}
