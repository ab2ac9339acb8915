package serverlock

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"example.com/serverlock/driver"
)

const (
	askForModule = 5 * time.Second
	fencedScript = "if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) == 0 then return {'LOCK.LOST'} end " +
		"return {redis.call(unpack(ARGV, 2))}"
)

// engine is what a manager does: attempts, renewal, release, and what is left to do.
type engine struct {
	timeout      time.Duration
	router       *router
	timer        *timer
	subscription *subscription
	lines        *lines
	solo         *solo
	portable     *portable
	hooks        Hooks
	log          *slog.Logger
	mayBeScript  bool

	warnsWithoutModule bool

	notifies    atomic.Bool // until the server says otherwise
	notifyWorks atomic.Bool
	missedUntil atomic.Int64
	hasWarned   atomic.Bool

	closed  chan struct{}
	closing sync.Once
	mu      sync.Mutex
	session map[*line]struct{}
}

func newEngine(client driver.Client, s *managerSettings) *engine {
	e := &engine{
		timeout: s.timeout, router: newRouter(client), hooks: s.hooks, log: s.log, mayBeScript: s.isPortable,
		warnsWithoutModule: !s.isSilent, closed: make(chan struct{}), session: map[*line]struct{}{},
	}
	e.timer = newTimer(e)
	e.subscription = newSubscription(e)
	e.lines = newLines(e)
	e.solo = &solo{engine: e}
	e.portable = newPortable(e)
	e.notifies.Store(true)
	return e
}

func (e *engine) warn(text string, args ...any) {
	e.log.Warn("serverlock: "+text, args...)
}

func (e *engine) isClosed() bool {
	select {
	case <-e.closed:
		return true
	default:
		return false
	}
}

func (e *engine) acquire(ctx context.Context, r *request) (*Held, error) {
	if r.err != nil {
		return nil, r.err
	}
	if e.isClosed() {
		return nil, failed(ErrMisuse, r.name, "its Locks are closed")
	}
	if err := e.refuseAgain(ctx, r); err != nil {
		return nil, err
	}
	attempt := newAttempt(ctx, e, r)
	got, err := attempt.run()
	if err != nil {
		if e.hooks.Refused != nil && ctx.Err() == nil {
			e.hooks.Refused(r.name, now()-attempt.began, err)
		}
		return nil, err
	}
	h := newHold(e, r, got, attempt.began)
	held := newHeld(h)
	if h.line != nil {
		e.watch(h)
	}
	e.timer.add(h)
	if e.hooks.Granted != nil {
		e.hooks.Granted(r.name, h.granted-h.began)
	}
	return held, nil
}

func (e *engine) watch(h *hold) {
	e.mu.Lock()
	e.session[h.line] = struct{}{}
	e.mu.Unlock()
	h.line.whenEnded(func() {
		e.mu.Lock()
		delete(e.session, h.line)
		e.mu.Unlock()
		h.lose("the connection of its session has ended", true)
	})
}

func (e *engine) endSession(h *hold) {
	if h.line != nil {
		h.line.close()
	}
}

// cancel ends an attempt: at once if that can be done, else in the background.
func (e *engine) cancel(r *request, id string, isPortable, isReachable bool) {
	settle := func(ctx context.Context) error {
		if isPortable {
			return e.portable.cancel(ctx, r, id)
		}
		for _, key := range r.keys {
			_, err := e.router.call(ctx, key, []any{"LOCK.CANCEL", key, id}, e.timeout)
			if reply, isSaid := err.(*said); isSaid && reply.isUnknownCommand() && r.needsModule() == "" {
				return e.portable.cancel(ctx, r, id) // it was asked for the module, which is not loaded
			} else if err != nil && !(isSaid && reply.isUnknownCommand()) {
				return err
			}
		}
		return nil
	}
	if isReachable && settle(context.Background()) == nil {
		return
	}
	e.timer.owe(now()+max(r.lease+2*time.Second, e.timeout), settle)
}

func (e *engine) extendWords(h *hold, lease time.Duration) []any {
	if h.portable() {
		return e.portable.words(h.request, "lock_extend", h.token, "PX", milliseconds(lease))
	}
	return h.request.extend(h.token, lease)
}

func (e *engine) extend(ctx context.Context, h *hold, lease time.Duration) error {
	if lease == 0 {
		lease = h.request.lease
	}
	if lease < time.Millisecond || lease > tenYears {
		r := &request{settings: settings{within: time.Second}, keys: h.request.keys, lease: lease}
		return failed(ErrArgument, h.request.name, r.fault())
	}
	if err := h.check(); err != nil {
		return err
	}
	sent := now()
	h.extending(sent, lease)
	reply, err := e.ask(ctx, h, h.request.key(), func() []any { return e.extendWords(h, lease) })
	h.extended(sent, lease, err == nil && reply == int64(1))
	e.timer.add(h)
	if err != nil {
		return err
	}
	if reply != int64(1) {
		return h.taken()
	}
	return h.check()
}

func (e *engine) verify(ctx context.Context, h *hold) (time.Duration, error) {
	if err := h.check(); err != nil {
		return 0, err
	}
	least := Forever
	for _, key := range h.request.keys {
		reply, err := e.ask(ctx, h, key, func() []any {
			if h.portable() {
				return e.portable.words(h.request, "lock_check", h.token)
			}
			return []any{"LOCK.CHECK", key, h.token}
		})
		if err != nil {
			return 0, err
		}
		left, _ := reply.(int64)
		least = min(least, time.Duration(left)*time.Millisecond)
	}
	if least <= 0 {
		return 0, h.taken()
	}
	return min(least, h.left()), nil
}

func (e *engine) fenced(ctx context.Context, h *hold, command []any) (any, error) {
	if err := h.check(); err != nil {
		return nil, err
	}
	reply, err := e.ask(ctx, h, h.request.key(), func() []any {
		script := fencedScript
		if h.portable() {
			script = portableFenced
		}
		words := []any{"EVAL", script, int64(2), h.request.key(), command[1], h.token}
		return append(words, command...)
	})
	if err != nil {
		return nil, err
	}
	list, _ := reply.([]any)
	if len(list) == 0 {
		return nil, nil
	}
	if text(list[0]) == "LOCK.LOST" {
		return nil, h.taken()
	}
	return list[0], nil
}

// ask sends a command for a lock that is held.
func (e *engine) ask(ctx context.Context, h *hold, key string, words func() []any) (any, error) {
	reply, err := e.sent(ctx, h, key, words)
	if _, isAbandoned := err.(*abandoned); isAbandoned {
		return nil, givenUp(ctx, h.request.name)
	}
	if err != nil {
		return nil, typed(err, h.request.name)
	}
	return reply, nil
}

// sent sends it, again if the module, or the script, is gone. The error is said, broken or abandoned.
func (e *engine) sent(ctx context.Context, h *hold, key string, words func() []any) (any, error) {
	for tries := 0; ; tries++ {
		reply, err := e.router.call(ctx, key, words(), e.timeout)
		if err == nil || tries == 2 || !e.missed(h, err) {
			return reply, err
		}
	}
}

// lost is called once for each hold that is lost, in a goroutine of its own.
func (e *engine) lost(h *hold, lost *Error) {
	e.warn(lost.Error())
	if e.hooks.Lost != nil {
		e.hooks.Lost(h.request.name, now()-h.granted, lost)
	}
	if h.request.onLost != nil {
		h.request.onLost(lost)
	}
}

// isPortable reports whether to ask with the scripts, because the server did not know LOCK.* a moment ago.
func (e *engine) isPortable() bool { return int64(now()) < e.missedUntil.Load() }

// missModule reports whether to go on with the scripts.
func (e *engine) missModule(reply *said) bool {
	if !e.mayBeScript {
		return false
	}
	if e.warnsWithoutModule && !e.hasWarned.Swap(true) {
		e.warn("the server has no LOCK.*; locks work by script, without order among waiters", "reply", reply.text)
	}
	e.missedUntil.Store(int64(now() + askForModule))
	return true
}

// missed reports whether to go on because the module, or the script, is gone. The scripts know the same value.
func (e *engine) missed(h *hold, err error) bool {
	reply, isSaid := err.(*said)
	switch {
	case !isSaid:
		return false
	case reply.code == "NOSCRIPT" && h.portable():
		e.portable.missed()
		return true
	case !reply.isUnknownCommand() || h.request.needsModule() != "" || !e.mayBeScript:
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	goesOn := !h.isPortable
	h.isPortable = true
	return goesOn
}

func (e *engine) census() map[string]int {
	counts := map[string]int{"lines": len(e.lines.turns)}
	e.lines.mu.Lock()
	counts["idle"] = len(e.lines.idle) // each is read by a goroutine, and kept for the next wait
	e.lines.mu.Unlock()
	e.router.mu.Lock()
	for _, l := range e.router.lanes {
		l.mu.Lock()
		counts["slots"] += l.running
		counts["queue"] += len(l.queue)
		l.mu.Unlock()
	}
	e.router.mu.Unlock()
	e.subscription.mu.Lock()
	counts["waiting"] = len(e.subscription.byID)
	e.subscription.mu.Unlock()
	e.mu.Lock()
	counts["sessions"] = len(e.session)
	e.mu.Unlock()
	e.solo.mu.Lock()
	if e.solo.isTaken {
		counts["alone"] = 1
	}
	e.solo.mu.Unlock()
	e.timer.mu.Lock()
	for _, one := range e.timer.entries {
		if one.hold == nil {
			counts["owed"]++
		}
	}
	e.timer.mu.Unlock()
	return counts
}

func (e *engine) close() {
	e.closing.Do(func() {
		close(e.closed)
		e.timer.close()
		e.subscription.close()
		e.lines.close()
		e.solo.close()
		e.mu.Lock()
		sessions := e.session
		e.session = map[*line]struct{}{}
		e.mu.Unlock()
		for line := range sessions {
			line.close()
		}
	})
}
