package serverlock

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"example.com/serverlock/driver"
)

// shy is a server that takes a connection at the third try only, and grants everything over it.
type shy struct {
	*moody
	dials int
}

func (s *shy) Node(context.Context, string) (driver.Node, error) { return s, nil }

func (s *shy) Dial(context.Context) (driver.Conn, error) {
	s.dials++
	if s.dials < 3 {
		return nil, io.EOF
	}
	return &grants{sent: make(chan struct{}, 1), closed: make(chan struct{})}, nil
}

type grants struct {
	sent   chan struct{}
	closed chan struct{}
}

func (g *grants) Send([]any) error {
	g.sent <- struct{}{}
	return nil
}

func (g *grants) Receive() (any, error) {
	select {
	case <-g.sent:
		return int64(7), nil
	case <-g.closed:
		return nil, io.EOF
	}
}

func (g *grants) Close() error {
	select {
	case <-g.closed:
	default:
		close(g.closed)
	}
	return nil
}

func TestASessionThatWaitsTriesToConnectAgain(t *testing.T) {
	locks := New(&shy{moody: &moody{}}, WithLogger(slog.New(slog.DiscardHandler)))
	defer locks.Close()
	held, err := locks.Lock("a", time.Minute, Session(), Wait(time.Minute)).Acquire(context.Background())
	if err != nil || held.Token() != 7 {
		t.Fatalf("got %v, %v", held, err)
	}
	once := New(&shy{moody: &moody{}}, WithLogger(slog.New(slog.DiscardHandler)))
	defer once.Close()
	_, err = once.Lock("a", time.Minute, Session()).Acquire(context.Background())
	mustKind(t, err, ErrNoServer)
}
