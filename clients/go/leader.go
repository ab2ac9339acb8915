package serverlock

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"
)

// Leadership names the leader. Token is 0 while there is no leader.
type Leadership struct {
	Token int64
	Owner string
}

// Leader campaigns for a key, whose lock is held for as long as its holder lives.
type Leader struct {
	engine  *engine
	request *request

	mu   sync.Mutex
	held *Held
	turn context.CancelFunc
}

// Leader describes a campaign for a key. [Leader.Run] starts it.
func (l *Locks) Leader(key string, lease time.Duration, options ...Option) *Leader {
	options = append([]Option{Wait(time.Minute)}, options...)
	r := newRequest([]string{key}, lease, one, nil, options)
	if r.reentrant && r.err == nil {
		r.err = failed(ErrArgument, r.name, "reentrant is not an option of Leader")
	}
	return &Leader{engine: l.engine, request: r}
}

// Run campaigns until ctx is done, then steps down and returns nil. It returns an error of kind [ErrArgument] or
// [ErrMisuse] if campaigning is pointless.
//
// Each time it is elected, it calls lead with the token. The context passed to lead is cancelled when the leadership
// ends: because it was lost, because of [Leader.Resign], or because ctx is done. Others can be elected once lead has
// returned, or the lease has expired.
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
					l.engine.warn("campaigning failed; trying again", "error", err)
				}
				l.engine.pause(ctx, span)
			}
			continue
		}
		known = ""
		if l.lead(ctx, held, lead) {
			l.engine.pause(ctx, span) // gives others a chance
		}
	}
	return nil
}

// lead reports whether the leader resigned.
func (l *Leader) lead(ctx context.Context, held *Held, lead func(ctx context.Context, token int64)) bool {
	turn, cancel := context.WithCancel(held.Context(ctx))
	defer cancel()
	l.set(held, cancel)
	defer func() {
		l.set(nil, nil)
		if err := held.leave(ctx); err != nil && !errors.Is(err, ErrLost) {
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

// Token returns the token while this Leader leads, otherwise 0.
func (l *Leader) Token() int64 {
	l.mu.Lock()
	held := l.held
	l.mu.Unlock()
	if held == nil || held.Check() != nil {
		return 0
	}
	return held.Token()
}

// Resign steps down, and campaigns again after others have had a chance.
func (l *Leader) Resign() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turn != nil {
		l.turn()
	}
}

// Observe yields the current leader and then each change, until ctx is done. It polls three times per lease. Without
// the module it sees no leader.
func (l *Leader) Observe(ctx context.Context) iter.Seq[Leadership] {
	return func(yield func(Leadership) bool) {
		before := Leadership{Token: -1}
		for ctx.Err() == nil && !l.engine.isClosed() {
			leader, ok := l.current(ctx)
			if ok && leader.Token != before.Token {
				before = leader
				if !yield(leader) {
					return
				}
			}
			l.engine.pause(ctx, max(time.Millisecond, l.request.lease/3))
		}
	}
}

// current asks the server for the leader. ok is false if it does not answer.
func (l *Leader) current(ctx context.Context) (leader Leadership, ok bool) {
	if l.request.err != nil {
		return Leadership{}, true
	}
	key := l.request.key()
	reply, err := l.engine.router.call(ctx, key, []any{"LOCK.INFO", key}, l.engine.timeout)
	if err != nil {
		_, ok := as[*replyError](err)
		return Leadership{}, ok
	}
	fields := fieldsOf(reply)
	token, _ := fields["token"].(int64)
	if text(fields["state"]) != "held" || token == 0 {
		return Leadership{}, true
	}
	return Leadership{Token: token, Owner: text(fields["owner"])}, true
}
