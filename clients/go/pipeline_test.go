package serverlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"example.com/serverlock/driver"
)

// gate is a server that replies with the first word of each call, once it is opened.
type gate struct {
	opened  chan struct{}
	takes   time.Duration // duration of an exchange by the package's clock
	mu      sync.Mutex
	batches []int
}

func (g *gate) Dial(context.Context) (driver.Conn, error) {
	return nil, errors.New("no dedicated connections")
}

func (g *gate) Exchange(ctx context.Context, calls []*driver.Call) {
	g.mu.Lock()
	g.batches = append(g.batches, len(calls))
	g.mu.Unlock()
	suspend(g.takes)
	select {
	case <-g.opened:
	case <-ctx.Done():
	}
	for _, call := range calls {
		call.Value = call.Words[0]
		if call.Words[0] == "bad" {
			call.Value, call.Err = nil, driver.ReplyError("ERR no")
		}
		if ctx.Err() != nil {
			call.Value, call.Err = nil, ctx.Err()
		}
	}
}

func (g *gate) has(t *testing.T, batches int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		g.mu.Lock()
		enough := len(g.batches) >= batches
		g.mu.Unlock()
		if enough {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("fewer than %d batches", batches)
		}
	}
}

func queued(t *testing.T, p *pipeline, count int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		enough := len(p.queue) == count
		p.mu.Unlock()
		if enough {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the queue is not %d long", count)
		}
	}
}

func TestManyCallersShareTwoConnectionsAndEachGetsItsOwnReply(t *testing.T) {
	server := &gate{opened: make(chan struct{})}
	p := &pipeline{clock: leaseClock, node: server}
	var all sync.WaitGroup
	for number := range 200 {
		all.Add(1)
		go func() {
			defer all.Done()
			word := any(number)
			if number == 13 {
				word = "bad"
			}
			call := &driver.Call{Words: []any{word}}
			err := p.do(context.Background(), 30*time.Second, call)
			if err != nil || number != 13 && call.Value != word || (call.Err != nil) != (number == 13) {
				t.Errorf("%d got %v, %v, %v", number, call.Value, call.Err, err)
			}
		}()
	}
	queued(t, p, 200-maxExchanges)
	close(server.opened)
	all.Wait()
	slices.Sort(server.batches)
	if !slices.Equal(server.batches, []int{1, 1, 200 - maxExchanges - maxBatch, maxBatch}) {
		t.Errorf("the batches were %v", server.batches)
	}
	if p.running != 0 {
		t.Errorf("%d are running", p.running)
	}
}

func TestCancellingACallerAffectsNoOther(t *testing.T) {
	server := &gate{opened: make(chan struct{})}
	p := &pipeline{clock: leaseClock, node: server}
	ctx, giveUp := context.WithCancel(context.Background())
	results := make(chan error)
	do := func(ctx context.Context, word string) *driver.Call {
		call := &driver.Call{Words: []any{word}}
		go func() { results <- p.do(ctx, 30*time.Second, call) }()
		return call
	}
	do(ctx, "sent")
	server.has(t, 1)
	do(context.Background(), "second")
	server.has(t, 2)
	do(ctx, "withdrawn")
	queued(t, p, 1)
	giveUp()
	var settled []<-chan struct{}
	for range 2 {
		var gone *abandoned
		if err := <-results; !errors.As(err, &gone) {
			t.Fatalf("a caller that gave up got %v", err)
		}
		settled = append(settled, gone.settled)
	}
	queued(t, p, 0)
	open := 0
	for _, one := range settled {
		select {
		case <-one:
		default:
			open++
		}
	}
	if open != 1 {
		t.Errorf("%d calls count as in flight, not 1", open)
	}
	close(server.opened)
	if err := <-results; err != nil {
		t.Error(err)
	}
	for _, one := range settled {
		<-one
	}
}

func TestACallToANearbyServerEndsAtItsCallersDeadline(t *testing.T) {
	server := &gate{opened: make(chan struct{}), takes: time.Second}
	p := &pipeline{clock: leaseClock, node: server}
	p.isFast.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	err := p.do(ctx, 30*time.Second, &driver.Call{Words: []any{"late"}})
	var gone *abandoned
	if !errors.As(err, &gone) {
		t.Fatalf("the caller got %v", err)
	}
	<-gone.settled
	if p.isFast.Load() {
		t.Error("the server still counts as nearby")
	}
	close(server.opened)
	if err := p.do(context.Background(), 30*time.Second, &driver.Call{Words: []any{"now"}}); err != nil {
		t.Error(err)
	}
}

func TestACallThatWaitsTooLongForAConnectionGetsErrNoServer(t *testing.T) {
	server := &gate{opened: make(chan struct{})}
	p := &pipeline{clock: leaseClock, node: server}
	for range maxExchanges {
		go func() { _ = p.do(context.Background(), 30*time.Second, &driver.Call{Words: []any{"x"}}) }()
	}
	server.has(t, maxExchanges)
	err := p.do(context.Background(), 20*time.Millisecond, &driver.Call{Words: []any{"late"}})
	mustKind(t, typed(read(err), `"a"`), ErrNoServer)
	queued(t, p, 0)
	close(server.opened)
}

func mustKind(t *testing.T, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("the error is %v, not of kind %q", err, kind)
	}
}
