package serverlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// How long a cancelled caller waits for its attempt to be withdrawn on the server. After that, cleanup continues in
// the background.
const farewell = 100 * time.Millisecond

var (
	// errNoNotify: this server or this user cannot use NOTIFY, or the script has no queue for this lock.
	errNoNotify = errors.New("no NOTIFY")
	// errWaiting: the attempt is in the queue, or joins the script's queue once its manager has subscribed.
	errWaiting = errors.New("WAITING")
	// errMoved: the attempt can wait in a better way, because the module was loaded or unloaded.
	errMoved = errors.New("moved")
	// errNotAlone: another attempt is waiting too.
	errNotAlone = errors.New("not alone")
)

// attempt is one attempt to acquire a lock. It sends the request, waits, and leaves nothing behind when it gives up.
//
// It first asks without waiting, through the application's own client. If the lock is taken, it joins the queue: as
// the only waiter, by blocking in pieces on a dedicated connection; otherwise with NOTIFY; without NOTIFY, by blocking
// on one of a few dedicated connections. An attempt for a session lock asks and blocks on its caller's connection (see
// sessions). Without the module, it joins the script's queue with NOTIFY, or polls if it cannot. Each copy of the
// request goes to the module or the script, whichever works at that moment.
type attempt struct {
	engine   *engine
	request  *request
	ctx      context.Context
	id       string
	began    time.Duration
	watching *watching

	tries       int
	conn        *connection
	session     *session
	isPooled    bool // conn is one of engine.connections
	isBlocking  bool // conn is the only waiter's
	needsConn   bool
	mayBeQueued bool // there may be something to cancel on the server
	wasQueued   bool
	hasPlace    bool // in the script's queue
	isPortable  bool // the last copy went to the script
	mayRun      bool // the script may still run a copy whose connection was closed
	noNotify    bool
	asksAgain   time.Duration // how long to wait for a message, according to the last reply
	inFlight    *abandoned    // the copy that has no reply yet, if there is one
	hasLooked   bool
	first       *stored // the result that was stored when the attempt began to wait; nil if it cannot be known
}

// newAttempt returns an attempt whose wait counts from when it began.
func newAttempt(ctx context.Context, e *engine, r *request, began time.Duration) *attempt {
	return &attempt{engine: e, request: r, ctx: ctx, id: newID(), began: began, needsConn: r.needsConnection()}
}

func newID() string { return strconv.FormatUint(rand.Uint64N(999_999_999_999_999_999)+1, 10) }

// run returns the grant, or the error that the user gets, or resolved.
func (a *attempt) run() (*grant, error) {
	a.watching = a.engine.watchAttempt(a.ctx, a.request, a.began)
	got, err := a.whole()
	if err != nil {
		a.abandon(err)
		if end, ok := as[*resolved](err); ok {
			return nil, end
		}
		if _, ok := as[*Error](err); !ok && a.ctx.Err() != nil {
			return nil, givenUp(a.ctx, a.request.name)
		}
		return nil, a.failure(err)
	}
	if a.request.session {
		got.session, a.session = a.session, nil
	}
	a.giveBackConnection()
	return got, nil
}

// failure returns the error that the user gets. If the server kept refusing for the whole wait, that is a timeout.
func (a *attempt) failure(err error) error {
	reply, isReply := as[*replyError](err)
	err = typed(err, a.request.name)
	if e, ok := as[*Error](err); ok && isReply && reply.isTransient() && a.request.wait > 0 {
		e.Kind = ErrTimeout
		e.Reason = fmt.Sprintf("not granted within %v: %s", (a.engine.now() - a.began).Round(time.Millisecond), reply.text)
	}
	return err
}

func (a *attempt) whole() (*grant, error) {
	if err := a.over(); err != nil {
		return nil, err
	}
	got, err := a.get()
	if err == nil {
		err = a.lookAgain()
	}
	if err == nil && (a.request.replicas > 0 || a.request.fsync) {
		err = a.confirm()
	}
	return got, err
}

func (a *attempt) get() (*grant, error) {
	for {
		got, err := a.try()
		if !errors.Is(err, errMoved) {
			return got, err
		}
	}
}

func (a *attempt) try() (*grant, error) {
	if a.request.session && a.request.wait > 0 && !a.engine.isPortable() {
		// The server has to see the wait on the connection that holds the caller's other locks.
		return a.byBlocking()
	}
	if a.engine.blocking.isReady() {
		if got, err := a.byBlockingAlone(); !errors.Is(err, errNotAlone) {
			return got, err
		}
	}
	if isUp, _ := a.engine.subscription.state(); a.request.wait > 0 && isUp && a.mayNotify() {
		if got, err := a.byNotify(); !errors.Is(err, errNoNotify) {
			return got, err
		}
	}
	// Once the attempt is queued, a copy without RESULT would miss the result.
	if !a.wasQueued || !a.request.wantsResult {
		got, err := a.ask(0, "", a.engine.timeout)
		if got != nil || err != nil {
			return got, err
		}
	}
	if a.left() <= 0 {
		if a.request.wait > 0 {
			return nil, a.timedOut()
		}
		return nil, a.refused()
	}
	if got, err := a.byBlockingAlone(); !errors.Is(err, errNotAlone) {
		return got, err
	}
	if a.mayNotify() {
		if got, err := a.byNotify(); !errors.Is(err, errNoNotify) {
			return got, err
		}
	}
	if a.isPortable {
		return a.poll()
	}
	return a.byBlocking()
}

// mayNotify reports whether the attempt can wait for messages.
func (a *attempt) mayNotify() bool {
	e := a.engine
	return !a.request.session && e.notifies.Load() && !a.noNotify && (!e.isPortable() || e.portable.hasQueue(a.request))
}

func (a *attempt) left() time.Duration {
	return a.request.wait - (a.engine.now() - a.began)
}

// over returns an error if the result is no longer wanted.
func (a *attempt) over() error {
	if a.ctx.Err() != nil {
		return givenUp(a.ctx, a.request.name)
	}
	if a.engine.isClosed() {
		return closedError(a.request.name)
	}
	return nil
}

// ask sends the request, and retries after transient errors. It returns nil and no error if the lock was not granted,
// and errWaiting if the attempt was queued or cannot join the queue yet.
func (a *attempt) ask(wait time.Duration, channel string, timeout time.Duration) (*grant, error) {
	blocks := wait > 0 && channel == ""
	for {
		a.isPortable = a.engine.isPortable() && (blocks || !a.engine.asksForModule())
		if a.isPortable && blocks {
			return nil, errMoved
		}
		if a.isPortable && channel != "" && !a.engine.portable.hasQueue(a.request) {
			return nil, errNoNotify
		}
		before, sent := a.mayBeQueued, a.engine.now()
		span, isEarly := wait, a.isPortable && channel != "" && !a.mayJoin()
		if isEarly {
			span = 0
		}
		reply, err := a.exchange(a.request.acquire(a.id, span, channel), timeout)
		if err == nil {
			a.tries = 0
			got, err := a.granted(reply, sent, span > 0)
			if got == nil {
				a.look()
			}
			if got == nil && err == nil && isEarly {
				a.asksAgain = resendDown
				return nil, errWaiting
			}
			return got, err
		}
		replied, isReply := as[*replyError](err)
		if isReply && replied.isUnknownCommand() && !a.isPortable && a.engine.missModule(replied) {
			a.mayBeQueued = before
			continue
		}
		if isReply && channel != "" && !a.isPortable && !a.engine.notifyWorks.Load() && !replied.isUnknownCommand() &&
			(replied.code == "ERR" || replied.code == "NOPERM") {
			a.noNotify = true
			return nil, errNoNotify
		}
		if err := a.pauseAfter(err); err != nil {
			return nil, err
		}
		if wait > 0 {
			wait = max(time.Millisecond, min(wait, a.left()))
		}
	}
}

// exchange sends a copy of the request to the module or the script. The script cannot grant session locks, or, without
// a queue, locks with several holders or keys.
func (a *attempt) exchange(c *call, timeout time.Duration) (any, error) {
	if !a.isPortable {
		reply, err := a.send(c.words(), timeout)
		if reply, ok := as[*replyError](err); err == nil || ok && !reply.isUnknownCommand() {
			a.engine.findModule()
		}
		return reply, err
	}
	if why := a.request.needsModule(); why != "" {
		return nil, failed(ErrUnavailable, a.request.name, why)
	}
	// An attempt that cannot wait for messages would starve behind a queue.
	c.isAlone = a.request.wait > 0 && !a.engine.notifies.Load()
	reply, err := a.engine.portable.call(func(words []any) (any, error) { return a.send(words, timeout) }, c)
	if _, isLost := as[*connectionLost](err); isLost {
		a.mayRun = true
	}
	return reply, err
}

func (a *attempt) send(words []any, timeout time.Duration) (any, error) {
	if err := a.over(); err != nil {
		return nil, err
	}
	conn := a.dedicated()
	if a.needsConn && (conn == nil || !conn.isOpen()) {
		if err := a.takeConnection(); err != nil {
			return nil, err
		}
		conn = a.dedicated()
	}
	a.mayBeQueued = true
	var reply any
	var err error
	if conn != nil {
		reply, err = conn.call(a.ctx, words, timeout)
		a.leaveSession(codeOf(err))
	} else {
		reply, err = a.engine.router.call(a.ctx, a.request.key(), words, timeout)
	}
	if gone, ok := as[*abandoned](err); ok {
		a.inFlight = gone
		return nil, givenUp(a.ctx, a.request.name)
	}
	return reply, err
}

// pauseAfter waits before the next try, or returns the error if there should not be one. The previous try has no
// pending reply: it was answered, or its connection is closed.
func (a *attempt) pauseAfter(err error) error {
	var ours *Error
	if errors.As(err, &ours) {
		return err
	}
	a.tries++
	reply, isReply := as[*replyError](err)
	if isReply && reply.isUnknownCommand() {
		return err
	}
	if a.conn != nil {
		a.conn.close() // the key may have moved to another server
	}
	if a.engine.router.isCluster() && (a.needsConn || !isReply) {
		ctx, cancel := context.WithTimeout(a.ctx, a.engine.timeout)
		_ = a.engine.router.refresh(ctx)
		cancel()
	}
	if !isTransient(err) {
		if isReply && !a.wasQueued && a.tries == 1 {
			a.mayBeQueued = a.mayRun // an error reply means that nothing was queued
		}
		return err
	}
	if a.left() <= 0 && a.tries >= 2 {
		return err
	}
	span := 10 * time.Millisecond
	if a.request.wait > 0 {
		longest := min(500*time.Millisecond, span<<min(a.tries, 6))
		span = min(longest/2+rand.N(longest/2), max(0, a.left()))
	}
	a.engine.pause(a.ctx, span)
	return a.over()
}

func (a *attempt) timedOut() error {
	return timedOutError(a.request.name, a.engine.now()-a.began)
}

// refused is the error of an attempt without a wait. After a RECOVER, it says if the lock is free.
func (a *attempt) refused() error {
	if a.request.form != recovery {
		return refusedError(a.request.name)
	}
	send := func(words []any) (any, error) {
		return a.engine.router.call(a.ctx, a.request.key(), words, a.engine.timeout)
	}
	var reply any
	var err error
	if c := a.request.info(); a.isPortable {
		reply, err = a.engine.portable.call(send, c)
	} else {
		reply, err = send(c.words())
	}
	if err == nil && text(fieldsOf(reply)["state"]) == "free" {
		return failed(ErrRefused, a.request.name, "there is nothing to recover: the lock is free")
	}
	return refusedError(a.request.name) // also if this user may not ask
}

// leaveSession gives a session's connection back if the key is on another server. It may have other locks, so it
// is closed only if its server has changed its role.
func (a *attempt) leaveSession(code string) {
	switch {
	case a.session == nil:
	case slices.Contains([]string{"READONLY", "MASTERDOWN", "LOADING", "UNBLOCKED"}, code):
		a.session.close()
	case slices.Contains([]string{"MOVED", "ASK", "CLUSTERDOWN", "TRYAGAIN"}, code):
		a.giveBackConnection()
	}
}

// dedicated returns the attempt's connection, or nil.
func (a *attempt) dedicated() interface {
	call(ctx context.Context, words []any, timeout time.Duration) (any, error)
	isOpen() bool
} {
	switch {
	case a.session != nil:
		return a.session
	case a.conn != nil:
		return a.conn
	}
	return nil
}

// takeConnection gets a connection for the attempt: its caller's for a session, its own for the only waiter, else a
// shared one.
func (a *attempt) takeConnection() error {
	a.giveBackConnection()
	e, r := a.engine, a.request
	switch {
	case r.session:
		session, err := e.sessions.take(a.ctx, r)
		a.session = session
		return err
	case a.isBlocking:
		conn, err := e.blocking.take(a.ctx, r.key())
		a.conn = conn
		return err
	}
	patience := e.timeout
	if r.wait > 0 {
		patience = max(0, a.left())
	}
	conn, err := e.connections.take(a.ctx, r.key(), patience)
	if err != nil {
		return err
	}
	if conn == nil {
		if err := a.over(); err != nil {
			return err
		}
		if r.wait > 0 {
			return a.timedOut()
		}
		return connectionLostf("no connection came free within %v", patience)
	}
	a.conn, a.isPooled = conn, true
	return nil
}

func (a *attempt) giveBackConnection() {
	conn, session, isPooled := a.conn, a.session, a.isPooled
	a.conn, a.session, a.isPooled = nil, nil, false
	switch {
	case session != nil:
		a.engine.sessions.giveBack(session)
	case isPooled:
		a.engine.connections.giveBack(conn)
	}
}

// leaveQueue gives up the place in the script's queue, in the background. A late cancel must not release a lock that
// the attempt gets by polling, so the attempt continues with a new ID. A place in the module's queue is kept.
func (a *attempt) leaveQueue() {
	if !a.isPortable || !a.mayBeQueued {
		return
	}
	a.engine.cancel(a.request, a.id, true, false, a.mayRun)
	a.id = newID()
	a.mayBeQueued, a.wasQueued, a.hasPlace, a.mayRun = false, false, false, false
}

// abandon leaves the queue, and releases a grant whose reply did not arrive.
func (a *attempt) abandon(err error) {
	if a.conn != nil && a.ctx.Err() != nil {
		a.conn.close() // a late reply must not be mistaken for the next call's
	}
	a.giveBackConnection()
	if !a.mayBeQueued {
		return
	}
	done := make(chan struct{})
	_, isLost := as[*connectionLost](err)
	go func() {
		defer close(done)
		mayRun := a.mayRun
		if a.inFlight != nil && !a.request.session { // on a session, CANCEL ends the wait for the reply
			mayRun = a.inFlight.mayRun() && a.isPortable || mayRun
		}
		a.engine.cancel(a.request, a.id, a.isPortable, !isLost, mayRun)
	}()
	if a.ctx.Err() == nil {
		<-done
		return
	}
	timer := a.engine.clock.NewTimer(farewell)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C():
	}
}
