package redigo

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"example.com/serverlock/driver"
	"example.com/serverlock/internal/fake"
)

func start(t *testing.T, reply string) (*fake.Server, *node) {
	t.Helper()
	server := fake.Start(t, func(words []string) string {
		if words[0] == "LOCK.1" {
			return reply
		}
		return "+OK\r\n"
	})
	pool := &redis.Pool{MaxIdle: 10, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", server.Address) }}
	t.Cleanup(func() { _ = pool.Close() })
	return server, New(pool).(*node)
}

func exchange(t *testing.T, n driver.Node, timeout time.Duration, commands ...string) []*driver.Call {
	t.Helper()
	var calls []*driver.Call
	for _, command := range commands {
		calls = append(calls, &driver.Call{Words: []any{command, "key", int64(1)}})
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	began := time.Now()
	n.Exchange(ctx, calls)
	if took := time.Since(began); took > timeout+10*time.Second {
		t.Errorf("it took %v", took)
	}
	return calls
}

func TestACallIsSentOnce(t *testing.T) {
	server, n := start(t, fake.Close)
	for _, call := range exchange(t, n, 5*time.Second, "LOCK.1", "OTHER") {
		var reply driver.ReplyError
		if call.Err == nil || errors.As(call.Err, &reply) {
			t.Errorf("%v got %v, %v", call.Words, call.Value, call.Err)
		}
	}
	if server.Count("LOCK.1") != 1 {
		t.Errorf("sent %d times", server.Count("LOCK.1"))
	}
}

func TestACallWithoutAReplyTimesOutAndClosesItsConnection(t *testing.T) {
	server, n := start(t, fake.Silence)
	if calls := exchange(t, n, time.Second, "OTHER", "LOCK.1"); calls[0].Value != "OK" || calls[1].Err == nil {
		t.Errorf("got %v and %v", calls[0].Value, calls[1].Err)
	}
	if got := exchange(t, n, 5*time.Second, "OTHER"); got[0].Value != "OK" {
		t.Errorf("the next call got %v, %v", got[0].Value, got[0].Err)
	}
	if server.Accepted() != 2 {
		t.Errorf("there were %d connections", server.Accepted())
	}
}

func TestTheConnectionToADemotedServerIsDropped(t *testing.T) {
	server, n := start(t, "-READONLY You can't write against a read only replica.\r\n")
	calls := exchange(t, n, 5*time.Second, "LOCK.1", "OTHER")
	var reply driver.ReplyError
	if !errors.As(calls[0].Err, &reply) || calls[1].Value != "OK" {
		t.Errorf("got %v and %v", calls[0].Err, calls[1].Value)
	}
	exchange(t, n, 5*time.Second, "OTHER")
	if server.Accepted() != 2 {
		t.Errorf("there were %d connections", server.Accepted())
	}
	exchange(t, n, 5*time.Second, "OTHER")
	if server.Accepted() != 2 {
		t.Errorf("a connection that works was not kept: there were %d", server.Accepted())
	}
}

func TestAHangingDialDoesNotBlockTheCaller(t *testing.T) {
	hangs := make(chan struct{})
	defer close(hangs)
	n := New(&redis.Pool{Dial: func() (redis.Conn, error) {
		<-hangs
		return nil, errors.New("too late")
	}}).(*node)
	if calls := exchange(t, n, 50*time.Millisecond, "LOCK.1"); !errors.Is(calls[0].Err, context.DeadlineExceeded) {
		t.Errorf("the error is %v", calls[0].Err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := n.Dial(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error is %v", err)
	}
}

func TestADedicatedConnectionWaitsWithoutATimeout(t *testing.T) {
	server := fake.Start(t, func([]string) string {
		time.Sleep(100 * time.Millisecond)
		return "+OK\r\n"
	})
	n := New(&redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", server.Address, redis.DialReadTimeout(10*time.Millisecond))
	}}).(*node)
	conn, err := n.Dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Send([]any{"LOCK.1", "key"}); err != nil {
		t.Fatal(err)
	}
	if got, err := conn.Receive(); got != "OK" || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
	_ = conn.Close()
}
