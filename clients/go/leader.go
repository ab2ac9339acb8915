package serverlock

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"
)

// Leadership says who leads. Token is 0 while nobody does.
type Leadership struct {
	Token int64
	Owner string
}

// Leader campaigns for a key: a lock that is held for as long as its holder lives.
type Leader struct {
	engine  *engine
	request *request

	mu   sync.Mutex
	held *Held
	turn context.CancelFunc
}

// Leader describes a campaign for a key. It begins with [Leader.Run].
func (l *Locks) Leader(key string, lease time.Duration, options ...Option) *Leader {
	options = append([]Option{Wait(time.Minute)}, options...)
	return &Leader{engine: l.engine, request: newRequest([]string{key}, lease, one, nil, options)}
}

// Run campaigns until ctx is done, then steps down. It returns nil then, or an error that no campaign can pass: of kind
// [ErrArgument] or [ErrMisuse].
//
// Each time that it is elected it calls lead with the token. The context of lead is cancelled when the leadership is over,
// because it was lost, or by [Leader.Resign], or because ctx is done. Others are elected once lead has returned, or the
// lease has ended.
func (l *Leader) Run(ctx context.Context, lead func(ctx context.Context, token int64)) error {
	span := min(time.Second, l.request.lease/3)
	known := ""
	for ctx.Err() == nil {
		held, err := l.engine.acquire(ctx, l.request)
		switch {
		case errors.Is(err, ErrArgument), errors.Is(err, ErrMisuse):
			return err
		case err != nil:
			if !errors.Is(err, ErrTimeout) && ctx.Err() == nil {
				if known != err.Error() {
					known = err.Error()
					l.engine.warn("campaigning goes on", "error", err)
				}
				pause(ctx, l.engine.closed, span)
			}
			continue
		}
		known = ""
		if l.lead(ctx, held, lead) {
			pause(ctx, l.engine.closed, span) // others have their turn
		}
	}
	return nil
}

// lead reports whether it resigned.
func (l *Leader) lead(ctx context.Context, held *Held, lead func(ctx context.Context, token int64)) bool {
	turn, cancel := context.WithCancel(held.Context(ctx))
	defer cancel()
	l.set(held, cancel)
	defer func() {
		l.set(nil, nil)
		if err := held.Release(ctx); err != nil && !errors.Is(err, ErrLost) {
			l.engine.warn("stepping down failed", "error", err)
		}
	}()
	lead(turn, held.Token())
	return held.Check() == nil && ctx.Err() == nil
}

func (l *Leader) set(held *Held, cancel context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held, l.turn = held, cancel
}

// Token is the token while this Leader leads, else 0.
func (l *Leader) Token() int64 {
	l.mu.Lock()
	held := l.held
	l.mu.Unlock()
	if held == nil || held.Check() != nil {
		return 0
	}
	return held.Token()
}

// Resign steps down, and campaigns again after others had their turn.
func (l *Leader) Resign() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turn != nil {
		l.turn()
	}
}

// Observe yields who leads, first the current leader, then each change, until ctx is done. It looks every third of the
// lease.
func (l *Leader) Observe(ctx context.Context) iter.Seq[Leadership] {
	return func(yield func(Leadership) bool) {
		before := Leadership{Token: -1}
		for ctx.Err() == nil && !l.engine.isClosed() {
			leader, isKnown := l.look(ctx)
			if isKnown && leader.Token != before.Token {
				before = leader
				if !yield(leader) {
					return
				}
			}
			pause(ctx, l.engine.closed, max(time.Millisecond, l.request.lease/3))
		}
	}
}

// look gives who leads. Where no server answers, nobody knows.
func (l *Leader) look(ctx context.Context) (leader Leadership, isKnown bool) {
	if l.request.err != nil {
		return Leadership{}, true
	}
	key := l.request.key()
	reply, err := l.engine.router.call(ctx, key, []any{"LOCK.INFO", key}, l.engine.timeout)
	if err != nil {
		_, isSaid := err.(*said)
		return Leadership{}, isSaid
	}
	fields := map[string]any{}
	switch reply := reply.(type) {
	case []any:
		for at := 0; at+1 < len(reply); at += 2 {
			fields[text(reply[at])] = reply[at+1]
		}
	case map[any]any:
		for name, value := range reply {
			fields[text(name)] = value
		}
	}
	token, _ := fields["token"].(int64)
	if text(fields["state"]) != "held" || token == 0 {
		return Leadership{}, true
	}
	return Leadership{Token: token, Owner: text(fields["owner"])}, true
}
