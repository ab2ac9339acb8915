package goredis

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"

	"example.com/serverlock/driver"
	"example.com/serverlock/internal/fake"
)

// answer replies like a server without HELLO; commands that begin with LOCK get the reply.
func answer(reply string) func(words []string) string {
	return func(words []string) string {
		switch strings.ToLower(words[0]) {
		case "hello":
			return "-ERR unknown command\r\n"
		case "ping":
			return "+PONG\r\n"
		case "lock.1", "lock.2":
			return reply
		}
		return "+OK\r\n"
	}
}

func open(t *testing.T, options *redis.Options) (*redis.Client, *node) {
	t.Helper()
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client, New(client).(*node)
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

func mustBeBroken(t *testing.T, calls []*driver.Call) {
	t.Helper()
	for _, call := range calls {
		var reply driver.ReplyError
		if call.Err == nil || errors.As(call.Err, &reply) || call.Value != nil {
			t.Errorf("%v got %v, %v", call.Words, call.Value, call.Err)
		}
	}
}

func TestACallIsSentOnce(t *testing.T) {
	server := fake.Start(t, answer(fake.Close))
	client, n := open(t, &redis.Options{Addr: server.Address})
	mustBeBroken(t, exchange(t, n, 5*time.Second, "LOCK.1"))
	mustBeBroken(t, exchange(t, n, 5*time.Second, "LOCK.2", "LOCK.2"))
	if server.Count("LOCK.1") != 1 || server.Count("LOCK.2") != 1 {
		t.Errorf("sent %d and %d times", server.Count("LOCK.1"), server.Count("LOCK.2"))
	}
	// The application's own client is unchanged.
	if client.Options().MaxRetries != 3 || client.Options().ReadTimeout == 0 || client.Options().ContextTimeoutEnabled {
		t.Errorf("its options are %+v", client.Options())
	}
}

func TestACallWithoutAReplyTimesOutAndClosesItsConnection(t *testing.T) {
	server := fake.Start(t, answer(fake.Silence))
	_, n := open(t, &redis.Options{Addr: server.Address})
	mustBeBroken(t, exchange(t, n, time.Second, "LOCK.1"))
	mustBeBroken(t, exchange(t, n, time.Second, "LOCK.1", "LOCK.2"))
	if got := exchange(t, n, 5*time.Second, "OTHER"); got[0].Value != "OK" {
		t.Errorf("the next call got %v, %v", got[0].Value, got[0].Err)
	}
	if server.Accepted() != 3 {
		t.Errorf("there were %d connections", server.Accepted())
	}
}

func TestRepliesAndErrorsAreReturned(t *testing.T) {
	server := fake.Start(t, func(words []string) string {
		return map[string]string{"LOCK.1": "$-1\r\n", "LOCK.2": "-GRACE not yet\r\n"}[words[0]] + answer("")(words)
	})
	_, n := open(t, &redis.Options{Addr: server.Address})
	for _, commands := range [][]string{{"LOCK.1"}, {"LOCK.1", "LOCK.2", "OTHER"}} {
		calls := exchange(t, n, 5*time.Second, commands...)
		if calls[0].Value != nil || calls[0].Err != nil {
			t.Errorf("nil became %v, %v", calls[0].Value, calls[0].Err)
		}
		if len(calls) == 3 && (calls[1].Err != driver.ReplyError("GRACE not yet") || calls[2].Value != "OK") {
			t.Errorf("got %v and %v", calls[1].Err, calls[2].Value)
		}
	}
}

func TestTheLibraryPreparesADedicatedConnection(t *testing.T) {
	server := fake.Start(t, answer(fake.Close))
	_, n := open(t, &redis.Options{Addr: server.Address, Password: "secret", DB: 3, ClientName: "app"})
	conn, err := n.Dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if server.Count("auth") != 1 || server.Count("select") != 1 || server.Count("client") == 0 {
		t.Error("the connection is not prepared")
	}
	if err := conn.Send([]any{"PING"}); err != nil {
		t.Fatal(err)
	}
	if got, err := conn.Receive(); got != "PONG" || err != nil {
		t.Fatalf("got %v, %v", got, err)
	}
	_ = conn.Send([]any{"LOCK.1"})
	if got, err := conn.Receive(); err == nil {
		t.Errorf("a closed connection replied %v", got)
	}
	if err := conn.Send([]any{"PING"}); err == nil {
		if _, err := conn.Receive(); err == nil {
			t.Error("it came back")
		}
	}
	_ = conn.Close()
	if server.Accepted() != 1 {
		t.Errorf("there were %d connections", server.Accepted())
	}
}

type provider struct{ unsubscribed int }

func (p *provider) Subscribe(auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	return auth.NewBasicCredentials("user", "token"), func() error { p.unsubscribed++; return nil }, nil
}

func TestADedicatedConnectionAuthenticatesOnceWithChangingCredentials(t *testing.T) {
	given := &provider{}
	server := fake.Start(t, answer("+OK\r\n"))
	_, n := open(t, &redis.Options{Addr: server.Address, StreamingCredentialsProvider: given})
	conn, err := n.Dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if server.Count("auth") != 1 || given.unsubscribed != 1 {
		t.Errorf("%d AUTH, %d unsubscribed", server.Count("auth"), given.unsubscribed)
	}
}

func TestADedicatedConnectionThatArrivesTooLateIsClosed(t *testing.T) {
	server := fake.Start(t, answer(fake.Silence))
	closed, dials := make(chan struct{}), make(chan struct{})
	_, n := open(t, &redis.Options{Addr: server.Address, Dialer: func(context.Context, string, string) (net.Conn, error) {
		<-dials
		conn, err := net.Dial("tcp", server.Address)
		return &watched{conn, closed}, err
	}})
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := n.Dial(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error is %v", err)
	}
	close(dials)
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Error("it is open")
	}
}

type watched struct {
	net.Conn
	closed chan struct{}
}

func (w *watched) Close() error {
	close(w.closed)
	return w.Conn.Close()
}

func TestADedicatedConnectionReportsAFailedLogin(t *testing.T) {
	server := fake.Start(t, func(words []string) string {
		return "-WRONGPASS invalid username-password pair\r\n"
	})
	_, n := open(t, &redis.Options{Addr: server.Address, Password: "wrong"})
	_, err := n.Dial(context.Background())
	var reply driver.ReplyError
	if !errors.As(err, &reply) || !strings.HasPrefix(string(reply), "WRONGPASS") {
		t.Errorf("the error is %v", err)
	}
	calls := exchange(t, n, 5*time.Second, "LOCK.1")
	if !errors.As(calls[0].Err, &reply) || !strings.HasPrefix(string(reply), "WRONGPASS") {
		t.Errorf("the error is %v", calls[0].Err)
	}
}

// The library writes to a client's options while its first connections find out what the server supports.
func TestADedicatedConnectionIsDialedWhileTheLibraryOpensOthers(t *testing.T) {
	server := fake.Start(t, func(words []string) string {
		switch {
		case strings.EqualFold(words[0], "hello"):
			return "%0\r\n"
		case len(words) > 1 && strings.EqualFold(words[1], "maint_notifications"):
			return "-ERR unknown subcommand\r\n"
		}
		return answer("")(words)
	})
	for range 20 {
		client, n := open(t, &redis.Options{Addr: server.Address, Protocol: 3})
		var calls sync.WaitGroup
		call := func(body func()) {
			calls.Add(1)
			go func() {
				defer calls.Done()
				body()
			}()
		}
		for range 8 {
			call(func() { _ = n.client.Ping(t.Context()).Err() })
			call(func() { _ = client.Ping(t.Context()).Err() })
			call(func() {
				conn, err := n.Dial(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				_ = conn.Close()
			})
		}
		calls.Wait()
	}
}
