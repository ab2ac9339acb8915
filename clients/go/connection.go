package serverlock

import (
	"context"
	"sync"
	"time"

	"example.com/serverlock/driver"
	"example.com/serverlock/internal/clock"
)

// connection is a dedicated connection. A goroutine reads from it, and notices at once when it ends. A connection
// serves one call at a time, and receives messages.
type connection struct {
	conn  driver.Conn
	clock clock.Clock
	ended chan struct{}

	mu        sync.Mutex
	waiting   []chan answer
	onMessage func(message string)
	onEnd     func()
}

type answer struct {
	value any
	err   error
}

func newConnection(conn driver.Conn, clock clock.Clock) *connection {
	c := &connection{conn: conn, clock: clock, ended: make(chan struct{})}
	go c.listen()
	return c
}

// call sends a command and waits for the reply. The error is a replyError, connectionLost or abandoned; after the last
// two the connection is closed.
func (c *connection) call(ctx context.Context, words []any, timeout time.Duration) (any, error) {
	reply := make(chan answer, 1)
	c.mu.Lock()
	c.waiting = append(c.waiting, reply)
	c.mu.Unlock()
	if err := c.conn.Send(words); err != nil {
		c.close()
		return nil, &connectionLost{cause: err}
	}
	timer := c.clock.NewTimer(timeout)
	defer timer.Stop()
	select {
	case got := <-reply:
		return got.value, got.err
	case <-c.ended:
		select {
		case got := <-reply: // the reply arrived just before the end
			return got.value, got.err
		default:
		}
		return nil, connectionLostf("the connection has ended")
	case <-timer.C():
		c.close()
		return nil, connectionLostf("no reply within %v", timeout)
	case <-ctx.Done():
		c.close()
		return nil, &abandoned{settled: c.ended}
	}
}

// subscribe subscribes to the channel, and passes its messages to onMessage in order of arrival.
func (c *connection) subscribe(channel string, timeout time.Duration, onMessage func(message string)) error {
	c.mu.Lock()
	c.onMessage = onMessage
	c.mu.Unlock()
	_, err := c.call(context.Background(), []any{"SUBSCRIBE", channel}, timeout)
	return err
}

// whenEnded registers a function that runs once, when the connection has ended for any reason.
func (c *connection) whenEnded(call func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.ended:
		go call()
	default:
		c.onEnd = call
	}
}

func (c *connection) isOpen() bool {
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

// close returns once the connection is closed: no reply can arrive after that.
func (c *connection) close() {
	_ = c.conn.Close()
	<-c.ended
}

func (c *connection) listen() {
	for {
		value, err := c.conn.Receive()
		if err != nil {
			if reply, ok := as[*replyError](read(err)); ok && c.answer(answer{err: reply}) {
				continue
			}
			break
		}
		if !c.isMessage(value) && !c.answer(answer{value: value}) {
			break // an unexpected reply
		}
	}
	_ = c.conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.ended)
	if c.onEnd != nil {
		go c.onEnd()
	}
}

func (c *connection) isMessage(value any) bool {
	words, ok := value.([]any)
	if !ok || len(words) != 3 || text(words[0]) != "message" {
		return false
	}
	c.mu.Lock()
	onMessage := c.onMessage
	c.mu.Unlock()
	if onMessage != nil {
		onMessage(text(words[2]))
	}
	return onMessage != nil
}

func (c *connection) answer(got answer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		return false
	}
	c.waiting[0] <- got
	c.waiting = c.waiting[1:]
	return true
}
