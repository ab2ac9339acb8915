// Package redigo adapts a redigo pool to serverlock. The pool's Dial or DialContext chooses the server (with Sentinel
// too) and authenticates.
//
//	locks := serverlock.New(redigo.New(&redis.Pool{Dial: dial}))
package redigo

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"example.com/serverlock/driver"
)

// New adapts one server's pool.
func New(pool *redis.Pool) driver.Client { return &node{pool: pool} }

type node struct {
	pool *redis.Pool
}

func (n *node) Node(context.Context, string) (driver.Node, error) { return n, nil }

func (n *node) Exchange(ctx context.Context, calls []*driver.Call) {
	conn, err := n.get(ctx)
	if err != nil {
		fail(calls, err)
		return
	}
	defer func() { _ = conn.Close() }()
	for at, call := range calls {
		if err := conn.Send(text(call.Words[0]), call.Words[1:]...); err != nil {
			fail(calls[at:], err)
			return
		}
	}
	if err := conn.Flush(); err != nil {
		fail(calls, err)
		return
	}
	isDemoted := false
	for at, call := range calls {
		call.Value, call.Err = receive(conn, patience(ctx))
		if call.Err == nil {
			continue
		}
		var reply driver.ReplyError
		if !errors.As(call.Err, &reply) {
			fail(calls[at:], call.Err)
			return
		}
		isDemoted = isDemoted || strings.HasPrefix(string(reply), "READONLY")
	}
	if isDemoted {
		// Make the pool dial again, to find the new master: it drops a connection whose read has failed.
		_, _ = redis.ReceiveWithTimeout(conn, time.Nanosecond)
	}
}

// get takes a connection from the pool, and returns by the deadline even if Dial takes no context.
func (n *node) get(ctx context.Context) (redis.Conn, error) {
	if n.pool.DialContext != nil || n.pool.IdleCount() > 0 {
		conn, err := n.pool.GetContext(ctx)
		return conn, read(err)
	}
	return bounded(ctx, n.pool.GetContext)
}

// Dial opens a connection as the pool would.
func (n *node) Dial(ctx context.Context) (driver.Conn, error) {
	dialed, err := bounded(ctx, func(ctx context.Context) (redis.Conn, error) {
		switch {
		case n.pool.DialContext != nil:
			return n.pool.DialContext(ctx)
		case n.pool.Dial != nil:
			return n.pool.Dial()
		}
		return nil, errors.New("the pool has neither Dial nor DialContext")
	})
	if err != nil {
		return nil, err
	}
	return &conn{dialed}, nil
}

func bounded(ctx context.Context, dial func(context.Context) (redis.Conn, error)) (redis.Conn, error) {
	type dialed struct {
		conn redis.Conn
		err  error
	}
	done := make(chan dialed, 1)
	go func() {
		conn, err := dial(ctx)
		done <- dialed{conn, err}
	}()
	select {
	case got := <-done:
		return got.conn, read(got.err)
	case <-ctx.Done():
		go func() {
			if late := <-done; late.err == nil {
				_ = late.conn.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

type conn struct {
	redis.Conn
}

func (c *conn) Send(words []any) error {
	if err := c.Conn.Send(text(words[0]), words[1:]...); err != nil {
		return err
	}
	return c.Flush()
}

func (c *conn) Receive() (any, error) { return receive(c.Conn, 0) }

// receive waits up to the timeout; 0 means no limit.
func receive(conn redis.Conn, timeout time.Duration) (any, error) {
	var value any
	var err error
	if _, isPlain := conn.(redis.ConnWithTimeout); isPlain {
		value, err = redis.ReceiveWithTimeout(conn, timeout)
	} else {
		value, err = conn.Receive()
	}
	return value, read(err)
}

// patience is the time until the deadline; never 0, which would mean no limit.
func patience(ctx context.Context) time.Duration {
	deadline, _ := ctx.Deadline()
	return max(time.Nanosecond, time.Until(deadline))
}

func fail(calls []*driver.Call, err error) {
	for _, call := range calls {
		call.Value, call.Err = nil, err
	}
}

func read(err error) error {
	var reply redis.Error
	if errors.As(err, &reply) {
		return driver.ReplyError(reply)
	}
	return err
}

func text(word any) string {
	switch word := word.(type) {
	case string:
		return word
	case []byte:
		return string(word)
	}
	return ""
}
