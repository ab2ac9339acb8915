package serverlock

import (
	"context"
	"sync"
	"time"

	"example.com/serverlock/driver"
)

// line is a connection of the manager's own. A goroutine reads it, so its end is noticed at once. It serves one call at
// a time, and messages.
type line struct {
	conn  driver.Conn
	ended chan struct{}

	mu      sync.Mutex
	waiting []chan answer
	heard   func(message string)
	onEnd   func()
}

type answer struct {
	value any
	err   error
}

func newLine(conn driver.Conn) *line {
	l := &line{conn: conn, ended: make(chan struct{})}
	go l.listen()
	return l
}

// call is one exchange. The error is said, broken or abandoned; after the last two the line is closed.
func (l *line) call(ctx context.Context, words []any, timeout time.Duration) (any, error) {
	reply := make(chan answer, 1)
	l.mu.Lock()
	l.waiting = append(l.waiting, reply)
	l.mu.Unlock()
	if err := l.conn.Send(words); err != nil {
		l.close()
		return nil, &broken{cause: err}
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case got := <-reply:
		return got.value, got.err
	case <-l.ended:
		select {
		case got := <-reply: // the last reply came before the end
			return got.value, got.err
		default:
		}
		return nil, brokenf("the connection has ended")
	case <-timer.C:
		l.close()
		return nil, brokenf("no reply within %v", timeout)
	case <-ctx.Done():
		l.close()
		return nil, &abandoned{settled: l.ended}
	}
}

// subscribe passes messages on from now on, in the order in which they come.
func (l *line) subscribe(channel string, timeout time.Duration, heard func(message string)) error {
	l.mu.Lock()
	l.heard = heard
	l.mu.Unlock()
	_, err := l.call(context.Background(), []any{"SUBSCRIBE", channel}, timeout)
	return err
}

// whenEnded calls once, when the connection has ended, whoever ended it.
func (l *line) whenEnded(call func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.ended:
		go call()
	default:
		l.onEnd = call
	}
}

func (l *line) isOpen() bool {
	select {
	case <-l.ended:
		return false
	default:
		return true
	}
}

// close returns when the connection is closed: nothing that was sent before gets a reply any more.
func (l *line) close() {
	_ = l.conn.Close()
	<-l.ended
}

func (l *line) listen() {
	for {
		value, err := l.conn.Receive()
		if err != nil {
			read, isSaid := read(err).(*said)
			if isSaid && l.answer(answer{err: read}) {
				continue
			}
			break
		}
		if !l.isMessage(value) && !l.answer(answer{value: value}) {
			break // a reply that nobody asked for
		}
	}
	_ = l.conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.ended)
	if l.onEnd != nil {
		go l.onEnd()
	}
}

func (l *line) isMessage(value any) bool {
	words, isList := value.([]any)
	if !isList || len(words) != 3 || text(words[0]) != "message" {
		return false
	}
	l.mu.Lock()
	heard := l.heard
	l.mu.Unlock()
	if heard != nil {
		heard(text(words[2]))
	}
	return heard != nil
}

func (l *line) answer(got answer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		return false
	}
	l.waiting[0] <- got
	l.waiting = l.waiting[1:]
	return true
}
