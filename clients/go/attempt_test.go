package serverlock

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"example.com/serverlock/driver"
)

// lateNode is a server that accepts the third connection, and grants everything over it.
type lateNode struct {
	*flakyNode
	dials int
}

func (n *lateNode) Node(context.Context, string) (driver.Node, error) { return n, nil }

func (n *lateNode) Dial(context.Context) (driver.Conn, error) {
	n.dials++
	if n.dials < 3 {
		return nil, io.EOF
	}
	return &grantingConn{sent: make(chan struct{}, 1), closed: make(chan struct{})}, nil
}

type grantingConn struct {
	sent   chan struct{}
	closed chan struct{}
}

func (g *grantingConn) Send([]any) error {
	g.sent <- struct{}{}
	return nil
}

func (g *grantingConn) Receive() (any, error) {
	select {
	case <-g.sent:
		return int64(7), nil
	case <-g.closed:
		return nil, io.EOF
	}
}

func (g *grantingConn) Close() error {
	select {
	case <-g.closed:
	default:
		close(g.closed)
	}
	return nil
}

func TestAWaitingSessionRetriesConnecting(t *testing.T) {
	locks := New(&lateNode{flakyNode: &flakyNode{}}, WithLogger(slog.New(slog.DiscardHandler)))
	defer locks.Close()
	held, err := locks.Lock("a", time.Minute, Session(), Wait(time.Minute)).Acquire(context.Background())
	if err != nil || held.Token() != 7 {
		t.Fatalf("got %v, %v", held, err)
	}
	once := New(&lateNode{flakyNode: &flakyNode{}}, WithLogger(slog.New(slog.DiscardHandler)))
	defer once.Close()
	_, err = once.Lock("a", time.Minute, Session()).Acquire(context.Background())
	mustKind(t, err, ErrNoServer)
}
