package serverlock

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"
)

const (
	// How long the replies about the server's clock and its margin are valid.
	clockValidFor = time.Minute
	// An estimate that may be off by more than this is used, but not kept.
	mostDoubt   = 250 * time.Millisecond
	clockPause  = 10 * time.Millisecond
	usualMargin = time.Second
)

// estimate is what is known about a server's clock.
type estimate struct {
	offset time.Duration // the server's time since 1970, minus the local clock
	doubt  time.Duration // by how much the offset may be off
	asked  time.Duration // local time
}

// isGood reports whether it is exact enough to be kept.
func (e estimate) isGood() bool { return e.doubt <= mostDoubt }

// serverClock knows the server's clock, and the margin that the server adds to leases. It asks for each at most once a
// minute. One caller asks at a time, while others wait for its answer.
type serverClock struct {
	engine *engine
	asking chan struct{}

	mu          sync.Mutex
	known       map[string]estimate // by key in a cluster, because each of its servers has its own clock
	margin      time.Duration
	marginAsked time.Duration
}

func newServerClock(e *engine) *serverClock {
	return &serverClock{
		engine: e, asking: make(chan struct{}, 1), known: map[string]estimate{},
		margin: usualMargin, marginAsked: e.now() - clockValidFor,
	}
}

// read estimates the clock of the server that has the request's key. The error is that of a call, or of a caller that
// has given up.
func (c *serverClock) read(ctx context.Context, r *request) (estimate, error) {
	place := ""
	if c.engine.router.isCluster() {
		place = r.key()
	}
	if found, ok := c.fresh(place); ok {
		return found, nil
	}
	if err := c.begin(ctx, r); err != nil {
		return estimate{}, err
	}
	defer c.end()
	if found, ok := c.fresh(place); ok { // another caller has just asked
		return found, nil
	}
	got, err := c.ask(ctx, r.key())
	if err == nil && got.isGood() {
		c.keep(place, got)
	}
	return got, err
}

// begin waits for the turn to ask; end passes it on.
func (c *serverClock) begin(ctx context.Context, r *request) error {
	timer := c.engine.clock.NewTimer(c.engine.timeout)
	defer timer.Stop()
	select {
	case c.asking <- struct{}{}:
		return nil
	case <-ctx.Done():
		return givenUp(ctx, r.name)
	case <-timer.C():
		return connectionLostf("another caller has asked the server and is waiting for the reply")
	}
}

func (c *serverClock) end() { <-c.asking }

func (c *serverClock) fresh(place string) (found estimate, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok = c.known[place]
	return found, ok && c.engine.now() < found.asked+clockValidFor
}

func (c *serverClock) keep(place string, got estimate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.known, func(_ string, old estimate) bool { return got.asked >= old.asked+clockValidFor })
	c.known[place] = got
}

// ask asks for the time, and once more if the reply was lost or slow.
func (c *serverClock) ask(ctx context.Context, key string) (estimate, error) {
	got, err := c.call(ctx, key)
	if err == nil {
		if got.isGood() {
			return got, nil
		}
		// It may have had to wait for a new connection.
		if again, err := c.call(ctx, key); err == nil && again.doubt < got.doubt {
			return again, nil
		}
		return got, nil
	}
	if !isTransient(err) {
		return estimate{}, err
	}
	if _, isReply := as[*replyError](err); !isReply { // in a cluster the key may have moved
		refreshing, cancel := context.WithTimeout(ctx, c.engine.timeout)
		_ = c.engine.router.refresh(refreshing)
		cancel()
	}
	c.engine.pause(ctx, clockPause)
	return c.call(ctx, key)
}

func (c *serverClock) call(ctx context.Context, key string) (estimate, error) {
	sent := c.engine.now()
	reply, err := c.engine.router.call(ctx, key, []any{"TIME"}, c.engine.timeout)
	if err != nil {
		return estimate{}, err
	}
	return estimateOf(reply, sent, c.engine.now())
}

// estimateOf reads a reply to TIME. The server read its clock at some moment between sent and received.
func estimateOf(reply any, sent, received time.Duration) (estimate, error) {
	words, _ := reply.([]any)
	if len(words) == 2 {
		seconds, err := strconv.ParseInt(text(words[0]), 10, 64)
		micros, err2 := strconv.ParseInt(text(words[1]), 10, 64)
		if err == nil && err2 == nil {
			server := time.Duration(seconds)*time.Second + time.Duration(micros)*time.Microsecond
			return estimate{offset: server - (sent+received)/2, doubt: (received - sent) / 2, asked: received}, nil
		}
	}
	return estimate{}, &replyError{code: "ERR", text: fmt.Sprintf("ERR unexpected reply %v to TIME", reply)}
}

// readMargin returns what the server adds to each lease. It returns an error only if the caller has given up.
func (c *serverClock) readMargin(ctx context.Context, r *request) (time.Duration, error) {
	if margin, isFresh := c.knownMargin(); isFresh {
		return margin, nil
	}
	err := c.begin(ctx, r)
	if err == nil {
		defer c.end()
		if margin, isFresh := c.knownMargin(); isFresh {
			return margin, nil
		}
		err = c.askMargin(ctx, r.key())
	}
	if _, isLost := as[*connectionLost](err); err != nil && !isLost {
		return 0, err
	}
	margin, _ := c.knownMargin()
	return margin, nil
}

// knownMargin returns the last known margin.
func (c *serverClock) knownMargin() (margin time.Duration, isFresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.margin, c.engine.now() < c.marginAsked+clockValidFor
}

// askMargin asks for the margin. After an error reply the last one stays valid: this user may not ask.
func (c *serverClock) askMargin(ctx context.Context, key string) error {
	reply, err := c.engine.router.call(ctx, key, []any{"LOCK.INFO", key}, c.engine.timeout)
	if _, isReply := as[*replyError](err); err != nil && !isReply {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.marginAsked = c.engine.now()
	if err == nil {
		c.margin = marginOf(reply)
	}
	return nil
}

// marginOf reads a reply to LOCK.INFO.
func marginOf(reply any) time.Duration {
	fields := fieldsOf(reply)
	lease, _ := fields["lease-ms"].(int64)
	free, ok := fields["free-in-ms"].(int64)
	if lease == 0 || !ok {
		return usualMargin
	}
	// Both are whole milliseconds, one rounded down and the other up.
	return time.Duration(max(0, free-lease-1)) * time.Millisecond
}
