package locktest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"example.com/serverlock/driver"
)

var errClosed = errors.New("the connection is closed")

// client is one process's client of the server.
type client struct{ server *Server }

func (c *client) Node(context.Context, string) (driver.Node, error) { return c, nil }

func (c *client) Exchange(ctx context.Context, calls []*driver.Call) {
	for _, call := range calls {
		if call.Err = context.Cause(ctx); call.Err == nil {
			call.Value, call.Err = c.server.command(nil, call.Words)
		}
	}
}

func (c *client) Dial(context.Context) (driver.Conn, error) {
	made := &conn{server: c.server}
	made.arrived.L = &made.mu
	return made, nil
}

// conn is a connection on which a command may block.
type conn struct {
	server *Server

	mu       sync.Mutex
	arrived  sync.Cond
	replies  []reply
	isClosed bool
}

type reply struct {
	value any
	err   error
}

// errBlocks: the reply arrives later.
var errBlocks = errors.New("the command blocks")

func (c *conn) Send(words []any) error {
	c.mu.Lock()
	isClosed := c.isClosed
	c.mu.Unlock()
	if isClosed {
		return errClosed
	}
	if value, err := c.server.command(c, words); !errors.Is(err, errBlocks) {
		c.deliver(value, err)
	}
	return nil
}

func (c *conn) Receive() (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.replies) == 0 && !c.isClosed {
		c.arrived.Wait()
	}
	if c.isClosed {
		return nil, errClosed
	}
	next := c.replies[0]
	c.replies = c.replies[1:]
	return next.value, next.err
}

func (c *conn) Close() error {
	c.mu.Lock()
	wasClosed := c.isClosed
	c.isClosed = true
	c.arrived.Broadcast()
	c.mu.Unlock()
	if !wasClosed {
		c.server.disconnect(c)
	}
	return nil
}

func (c *conn) deliver(value any, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replies = append(c.replies, reply{value: value, err: err})
	c.arrived.Broadcast()
}

// subscribe returns the reply to SUBSCRIBE.
func (s *Server) subscribe(c *conn, channel string) any {
	if s.channels[channel] == nil {
		s.channels[channel] = map[*conn]struct{}{}
	}
	s.channels[channel][c] = struct{}{}
	return []any{"subscribe", channel, int64(1)}
}

// notify publishes a message about an attempt.
func (s *Server) notify(w *waiter, what string) {
	for subscriber := range s.channels[w.channel] {
		subscriber.deliver([]any{"message", w.channel, fmt.Sprintf("%s %s %s", what, w.id, w.keys[0])}, nil)
	}
}

// disconnect ends everything that depends on a connection.
func (s *Server) disconnect(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, subscribers := range s.channels {
		delete(subscribers, c)
	}
	for _, w := range s.attempts {
		if w.isWaiting && w.blocked == c {
			s.leave(w)
		}
	}
	for _, l := range s.locks {
		for _, one := range l.holders {
			if one.session == c {
				one.until = min(one.until, s.now()+margin)
			}
		}
		s.serve(l)
	}
}
