package serverlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

// How long a cancelled caller waits for its attempt to be given up at the server. It goes on in the background.
const farewell = 100 * time.Millisecond

var (
	// errNoNotify: this server, or this user, cannot wait by NOTIFY.
	errNoNotify = errors.New("no NOTIFY")
	// errStanding: the attempt stands in line.
	errStanding = errors.New("WAITING")
	// errAskForModule: it may be loaded by now.
	errAskForModule = errors.New("ask for the module")
	// errNotAlone: others wait too.
	errNotAlone = errors.New("not alone")
)

// attempt is one try to get a lock: sent, waited for, and given up without leaving anything behind. It asks without
// waiting first, over the application's own client. Only if somebody else has the lock, it stands in line: alone by blocking
// in pieces on one line, beside others by NOTIFY, else by blocking on one of a few lines, else by polling with the
// portable script.
type attempt struct {
	engine  *engine
	request *request
	ctx     context.Context
	id      string
	began   time.Duration

	tries      int
	line       *line
	isPooled   bool // the line is one of the few
	isSolo     bool // the line is that of the only wait
	usesLine   bool
	mayStand   bool // the server may know of it
	stood      bool
	isPortable bool
	noNotify   bool
	settled    <-chan struct{} // closed when nothing is on its way any more
}

// grant is what the server said, and what belongs to it.
type grant struct {
	token       int64
	sent        time.Duration // when the request was sent that it answers
	predecessor *Predecessor
	isPortable  bool
	line        *line
}

func newAttempt(ctx context.Context, e *engine, r *request) *attempt {
	id := strconv.FormatUint(rand.Uint64N(999_999_999_999_999_999)+1, 10)
	return &attempt{engine: e, request: r, ctx: ctx, id: id, began: now(), usesLine: r.needsLine()}
}

// run gives the grant or the typed error.
func (a *attempt) run() (*grant, error) {
	got, err := a.whole()
	if err != nil {
		a.abandon(err)
		if _, isTyped := err.(*Error); !isTyped && a.ctx.Err() != nil {
			return nil, givenUp(a.ctx, a.request.name)
		}
		return nil, a.failure(err)
	}
	if a.request.session {
		got.line, a.line = a.line, nil
	}
	a.giveBackLine()
	return got, nil
}

// failure is the error as users get it. Where the server was changing for all of the wait, that has ended.
func (a *attempt) failure(err error) error {
	reply, isSaid := err.(*said)
	err = typed(err, a.request.name)
	if made, isOurs := err.(*Error); isOurs && isSaid && reply.passes() && a.request.wait > 0 {
		made.Kind = ErrTimeout
		made.Reason = fmt.Sprintf("not granted within %v: %s", (now() - a.began).Round(time.Millisecond), reply.text)
	}
	return err
}

func (a *attempt) whole() (*grant, error) {
	if err := a.over(); err != nil {
		return nil, err
	}
	got, err := a.get()
	if err == nil && (a.request.replicas > 0 || a.request.fsync) {
		err = a.confirm()
	}
	return got, err
}

func (a *attempt) get() (*grant, error) {
	for {
		var got *grant
		var err error
		mayStand := a.mayStand
		if a.isPortable = a.engine.isPortable(); a.isPortable {
			got, err = a.poll()
		} else {
			got, err = a.byModule()
		}
		reply, isSaid := err.(*said)
		switch {
		case err == errAskForModule:
		case isSaid && reply.isUnknownCommand() && !a.isPortable && a.engine.missModule(reply):
			a.mayStand = mayStand
		default:
			return got, err
		}
	}
}

func (a *attempt) byModule() (*grant, error) {
	if a.engine.solo.isReady() {
		if got, err := a.alone(); err != errNotAlone {
			return got, err
		}
	}
	isUp, _ := a.engine.subscription.state()
	if a.request.wait > 0 && isUp && a.engine.notifies.Load() {
		if got, err := a.byNotify(); err != errNoNotify {
			return got, err
		}
	}
	got, err := a.ask(0, "", a.engine.timeout)
	if got != nil || err != nil {
		return got, err
	}
	if a.left() <= 0 {
		a.mayStand = false // its place holds nobody up
		if a.request.wait > 0 {
			return nil, a.timedOut()
		}
		return nil, refusedError(a.request.name)
	}
	if got, err := a.alone(); err != errNotAlone {
		return got, err
	}
	if a.engine.notifies.Load() && !a.noNotify {
		if got, err := a.byNotify(); err != errNoNotify {
			return got, err
		}
	}
	return a.byBlocking()
}

func (a *attempt) left() time.Duration {
	return a.request.wait - (now() - a.began)
}

// over is the error of an attempt that nobody waits for any more.
func (a *attempt) over() error {
	if a.ctx.Err() != nil {
		return givenUp(a.ctx, a.request.name)
	}
	if a.engine.isClosed() {
		return failed(ErrMisuse, a.request.name, "its Locks are closed")
	}
	return nil
}

// ask sends it, and again after errors that may pass. No grant and no error: nil. errStanding: WAITING.
func (a *attempt) ask(wait time.Duration, channel string, timeout time.Duration) (*grant, error) {
	for {
		sent := now()
		reply, err := a.exchange(a.request.acquire(a.id, wait, channel), timeout)
		if err == nil {
			a.tries = 0
			return a.granted(reply, sent)
		}
		if reply, isSaid := err.(*said); isSaid && channel != "" && !a.engine.notifyWorks.Load() &&
			!reply.isUnknownCommand() && (reply.code == "ERR" || reply.code == "NOPERM") {
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

func (a *attempt) granted(reply any, sent time.Duration) (*grant, error) {
	got := &grant{sent: sent, isPortable: a.isPortable}
	switch reply := reply.(type) {
	case nil:
		return nil, nil
	case int64:
		got.token = reply
	case []any:
		if len(reply) == 4 {
			got.token, _ = reply[0].(int64)
			got.predecessor = predecessor(reply)
		}
	default:
		if text(reply) == "WAITING" {
			a.stood = true
			a.engine.notifyWorks.Store(true)
			return nil, errStanding
		}
	}
	if got.token <= 0 {
		return nil, failed(ErrArgument, a.request.name, fmt.Sprintf("the server answered %v", reply))
	}
	return got, nil
}

func (a *attempt) exchange(words []any, timeout time.Duration) (any, error) {
	if err := a.over(); err != nil {
		return nil, err
	}
	if a.usesLine && (a.line == nil || !a.line.isOpen()) {
		if err := a.takeLine(); err != nil {
			return nil, err
		}
	}
	a.mayStand = true
	var reply any
	var err error
	if a.line != nil {
		reply, err = a.line.call(a.ctx, words, timeout)
	} else {
		reply, err = a.engine.router.call(a.ctx, a.request.key(), words, timeout)
	}
	if gone, isAbandoned := err.(*abandoned); isAbandoned {
		a.settled = gone.settled
		return nil, givenUp(a.ctx, a.request.name)
	}
	return reply, err
}

// pauseAfter waits a little before the next copy, or gives the error if there is to be none. The connection of the copy
// before is closed, or has answered.
func (a *attempt) pauseAfter(err error) error {
	var ours *Error
	if errors.As(err, &ours) {
		return err
	}
	a.tries++
	reply, isSaid := err.(*said)
	if isSaid && reply.isUnknownCommand() {
		return err
	}
	if a.line != nil {
		a.line.close() // it may lead to a server that does not have the key any more
	}
	if a.engine.router.isCluster() && (a.usesLine || !isSaid) {
		ctx, cancel := context.WithTimeout(a.ctx, a.engine.timeout)
		_ = a.engine.router.refresh(ctx)
		cancel()
	}
	if !mayPass(err) {
		if isSaid && !a.stood && a.tries == 1 {
			a.mayStand = false // after an error nothing has changed
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
	pause(a.ctx, a.engine.closed, span)
	return a.over()
}

func (a *attempt) timedOut() error {
	return timedOutError(a.request.name, now()-a.began)
}

// takeLine takes a line for the whole attempt: its own for a session, one of the few for WAIT.
func (a *attempt) takeLine() error {
	a.giveBackLine()
	e, r := a.engine, a.request
	if a.isSolo || r.session {
		take := e.solo.take
		if r.session {
			take = func(ctx context.Context, key string) (*line, error) { return e.router.dial(ctx, key, e.timeout) }
		}
		line, err := take(a.ctx, r.key())
		a.line = line
		return err
	}
	patience := e.timeout
	if r.wait > 0 {
		patience = max(0, a.left())
	}
	line, err := e.lines.take(a.ctx, r.key(), patience)
	if err != nil {
		return err
	}
	if line == nil {
		if err := a.over(); err != nil {
			return err
		}
		if r.wait > 0 {
			return a.timedOut()
		}
		return brokenf("no connection came free within %v", patience)
	}
	a.line, a.isPooled = line, true
	return nil
}

func (a *attempt) giveBackLine() {
	line := a.line
	a.line = nil
	if line == nil {
		return
	}
	if a.isPooled {
		a.engine.lines.giveBack(line)
	} else if !a.isSolo {
		line.close()
	}
	a.isPooled = false
}

// abandon leaves the line, and gives back what was granted without its being known.
func (a *attempt) abandon(err error) {
	if a.line != nil && a.ctx.Err() != nil {
		a.line.close() // a reply that is on its way must not be read as that to another call
	}
	a.giveBackLine()
	if !a.mayStand {
		return
	}
	done := make(chan struct{})
	_, isBroken := err.(*broken)
	go func() {
		defer close(done)
		if a.settled != nil {
			<-a.settled
		}
		a.engine.cancel(a.request, a.id, a.isPortable, !isBroken)
	}()
	if a.ctx.Err() == nil {
		<-done
		return
	}
	select {
	case <-done:
	case <-time.After(farewell):
	}
}

// predecessor reads token, overdue-ms, previous token and previous owner. nil: the lock was free.
func predecessor(details []any) *Predecessor {
	overdue, isNumber := details[1].(int64)
	if !isNumber {
		return nil
	}
	token, _ := details[2].(int64)
	return &Predecessor{
		Overdue: time.Duration(overdue) * time.Millisecond,
		Token:   token,
		Owner:   text(details[3]),
	}
}
