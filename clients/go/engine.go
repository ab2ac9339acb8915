package serverlock

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"example.com/serverlock/driver"
	"example.com/serverlock/internal/clock"
)

const (
	askForModule = 5 * time.Second
	// How long the server may still run a copy after its connection was closed.
	lateCopy     = 2 * time.Second
	fencedScript = "if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) == 0 then return {'LOCK.LOST'} end " +
		"return {redis.call(unpack(ARGV, 2))}"
)

// engine runs a manager: attempts, renewals, releases, and cleanup in the background.
type engine struct {
	timeout      time.Duration
	clock        clock.Clock
	router       *router
	timer        *timer
	subscription *subscription
	connections  *connections
	sessions     *sessions
	blocking     *blocking
	portable     *portable
	serverClock  *serverClock
	flights      *flights
	hooks        Hooks
	log          *slog.Logger
	mayBeScript  bool

	warnsWithoutModule bool

	notifies    atomic.Bool // until the server refuses NOTIFY
	notifyWorks atomic.Bool
	missedUntil atomic.Int64 // when to try the module again; 0 while it is not known to be missing
	hasWarned   atomic.Bool

	closed  chan struct{}
	closing sync.Once
}

func newEngine(client driver.Client, s *managerSettings) *engine {
	e := &engine{
		timeout: s.timeout, clock: s.clock, router: newRouter(client, s.clock), hooks: s.hooks, log: s.log, mayBeScript: s.isPortable,
		warnsWithoutModule: !s.isSilent, closed: make(chan struct{}),
	}
	e.timer = newTimer(e)
	e.subscription = newSubscription(e)
	e.connections = newConnections(e)
	e.sessions = newSessions(e)
	e.blocking = &blocking{engine: e}
	e.portable = newPortable(e)
	e.serverClock = newServerClock(e)
	e.flights = newFlights(e)
	e.notifies.Store(true)
	return e
}

// now is the time on the clock for leases and waits.
func (e *engine) now() time.Duration { return e.clock.Now() }

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

// admit returns the error of a request that must not be sent, or the Held that the caller already has and gets again.
func (e *engine) admit(ctx context.Context, r *request) (*Held, error) {
	if r.err != nil {
		return nil, r.err
	}
	if e.isClosed() {
		return nil, closedError(r.name)
	}
	return e.heldAgain(ctx, r)
}

func (e *engine) acquire(ctx context.Context, r *request) (*Held, error) {
	held, err := e.admit(ctx, r)
	if err != nil || held != nil && held.hold.enterAgain() {
		return held, err
	}
	return e.acquireNew(ctx, r, e.now())
}

// acquireNew makes an attempt whose wait counts from when it began. The error may be resolved.
func (e *engine) acquireNew(ctx context.Context, r *request, began time.Duration) (*Held, error) {
	attempt := newAttempt(ctx, e, r, began)
	got, err := attempt.run()
	if err != nil {
		if _, hasResult := as[*resolved](err); e.hooks.Refused != nil && ctx.Err() == nil && !hasResult {
			e.hooks.Refused(r.name, e.now()-attempt.began, err)
		}
		attempt.watching.hasNone(attempt.isPortable, err)
		return nil, err
	}
	h := newHold(e, r, got, attempt.began)
	held := newHeld(h)
	h.watching = attempt.watching
	h.watching.hasGrant(h)
	if h.session != nil {
		e.sessions.keep(h)
	}
	e.timer.add(h)
	if e.hooks.Granted != nil {
		e.hooks.Granted(r.name, h.granted-h.began)
	}
	return held, nil
}

func (e *engine) endSession(h *hold) {
	if h.session != nil {
		e.sessions.drop(h)
	}
}

// cancel withdraws an attempt: at once if the server answers, otherwise in the background. The script does not block
// the ID, so the attempt is withdrawn once more if the server may still run one of its calls.
func (e *engine) cancel(r *request, id string, isPortable, isReachable, mayRun bool) {
	settle := func(ctx context.Context) error {
		if isPortable {
			return e.portable.cancel(ctx, r, id)
		}
		for _, key := range r.keys {
			_, err := e.router.call(ctx, key, []any{"LOCK.CANCEL", key, id}, e.timeout)
			if reply, ok := as[*replyError](err); ok && reply.isUnknownCommand() && r.needsModule() == "" {
				return e.portable.cancel(ctx, r, id) // the attempt has checked whether the module is loaded
			} else if err != nil && !(ok && reply.isUnknownCommand()) {
				return err
			}
		}
		return nil
	}
	until := e.now() + max(r.lease+lateCopy, e.timeout)
	if !isReachable || settle(context.Background()) != nil {
		e.timer.owe(until, settle)
	}
	if mayRun {
		e.timer.later(e.now()+lateCopy, func() { e.timer.owe(until, settle) })
	}
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
	sent := e.now()
	if !h.extending(sent, lease) {
		return h.check()
	}
	reply, err := e.sent(ctx, h, h.request.extend(h.token, lease))
	if gone, ok := as[*abandoned](err); ok {
		go func() { // the EXTEND is in flight until it has settled
			<-gone.settled
			h.extended(sent, lease, false)
		}()
	} else {
		h.extended(sent, lease, err == nil && reply == int64(1))
	}
	e.timer.add(h)
	if err != nil {
		return ofCaller(ctx, h.request.name, err)
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
	for number := range h.request.keys {
		reply, err := e.ask(ctx, h, h.request.check(number, h.token))
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
	reply, err := e.repeated(h, func() (any, error) {
		script := fencedScript
		if h.portable() {
			script = portableFenced
		}
		words := []any{"EVAL", script, int64(2), h.request.key(), command[1], h.token}
		return e.router.call(ctx, h.request.key(), append(words, command...), e.timeout)
	})
	if err = ofCaller(ctx, h.request.name, err); err != nil {
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

// ask sends a command for a held lock.
func (e *engine) ask(ctx context.Context, h *hold, c *call) (any, error) {
	reply, err := e.sent(ctx, h, c)
	return reply, ofCaller(ctx, h.request.name, err)
}

// ofCaller returns the error that the caller gets.
func ofCaller(ctx context.Context, name string, err error) error {
	if _, ok := as[*abandoned](err); ok {
		return givenUp(ctx, name)
	}
	if err != nil {
		return typed(err, name)
	}
	return nil
}

// sent sends a command, with the script if the module is missing. The error is a replyError, connectionLost or
// abandoned.
func (e *engine) sent(ctx context.Context, h *hold, c *call) (any, error) {
	return e.repeated(h, func() (any, error) { return e.sendOnce(ctx, h, c, e.timeout) })
}

// sendOnce sends a command for a held lock, with the script if the module was missing before.
func (e *engine) sendOnce(ctx context.Context, h *hold, c *call, timeout time.Duration) (any, error) {
	send := func(words []any) (any, error) { return e.router.call(ctx, c.key(), words, timeout) }
	if h.portable() {
		return e.portable.call(send, c)
	}
	return send(c.words())
}

func (e *engine) repeated(h *hold, send func() (any, error)) (any, error) {
	reply, err := send()
	if err != nil && e.missed(h, err) {
		return send()
	}
	return reply, err
}

// lost runs once for each lost hold, in its own goroutine.
func (e *engine) lost(h *hold, lost *Error) {
	e.warn(lost.Error())
	if e.hooks.Lost != nil {
		e.hooks.Lost(h.request.name, e.now()-h.granted, lost)
	}
	h.watching.ended(EndLost, lost)
	if h.request.onLost != nil {
		h.request.onLost(lost)
	}
}

// isPortable reports whether LOCK.* was unknown to the server when last tried.
func (e *engine) isPortable() bool { return e.missedUntil.Load() != 0 }

// asksForModule reports whether the caller must try the module again now.
func (e *engine) asksForModule() bool {
	until := e.missedUntil.Load()
	return int64(e.now()) >= until && e.missedUntil.CompareAndSwap(until, int64(e.now()+askForModule))
}

// findModule is called when the server knows LOCK.*.
func (e *engine) findModule() {
	if e.isPortable() {
		e.missedUntil.Store(0)
	}
}

// missModule is called when the server does not know LOCK.*; it reports whether to continue with the script.
func (e *engine) missModule(reply *replyError) bool {
	if !e.mayBeScript {
		return false
	}
	if e.warnsWithoutModule && !e.hasWarned.Swap(true) {
		e.warn("the server has no LOCK.*: locks work through a script, in order of arrival; Session, blocking waits and "+
			"deadlock detection need the module", "reply", reply.text)
	}
	e.missedUntil.Store(int64(e.now() + askForModule))
	return true
}

// missed reports whether to continue with the script because the module is missing. Both store the same value.
func (e *engine) missed(h *hold, err error) bool {
	reply, ok := as[*replyError](err)
	if !ok || !reply.isUnknownCommand() || !e.mayBeScript || h.request.needsModule() != "" {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	goesOn := !h.isPortable
	h.isPortable = true
	return goesOn
}

func (e *engine) census() map[string]int {
	counts := map[string]int{"connections": len(e.connections.turns), "slots": 0, "queue": 0, "blocking": 0, "owed": 0}
	e.connections.mu.Lock()
	counts["idle"] = len(e.connections.idle) // each has a goroutine, and is kept for the next wait
	e.connections.mu.Unlock()
	e.router.mu.Lock()
	for _, l := range e.router.pipelines {
		l.mu.Lock()
		counts["slots"] += l.running
		counts["queue"] += len(l.queue)
		l.mu.Unlock()
	}
	e.router.mu.Unlock()
	e.subscription.mu.Lock()
	counts["waiting"] = len(e.subscription.byID)
	e.subscription.mu.Unlock()
	counts["sessions"] = e.sessions.count()
	counts["flights"] = e.flights.count()
	e.blocking.mu.Lock()
	if e.blocking.isTaken {
		counts["blocking"] = 1
	}
	e.blocking.mu.Unlock()
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
		e.connections.close()
		e.blocking.close()
		e.sessions.close()
	})
}
