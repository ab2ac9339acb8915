package serverlock

import (
	"errors"
	"math/rand/v2"
	"time"
)

const (
	piece         = 5 * time.Second
	blockingPiece = 2 * time.Second
	sharedPiece   = time.Second
	resend        = 5 * time.Second
	resendDown    = time.Second
	// A server whose clock runs a little fast ends a wait a little early.
	slack = 100 * time.Millisecond
)

// byNotify waits in the queue without a connection, and claims the lock when notified of the grant.
func (a *attempt) byNotify() (*grant, error) {
	subscription := a.engine.subscription
	a.engine.blocking.end()
	update := subscription.register(a.id, a.request.key())
	defer subscription.unregister(a.id)
	subscription.ready(a.ctx, update, min(resendDown, a.left()))
	message := ""
	for {
		if _, isRefused := subscription.state(); isRefused { // from the start, or after the user lost the permission
			a.engine.notifies.Store(false)
			a.leaveQueue()
			return nil, errNoNotify
		}
		left := a.left()
		if left <= 0 {
			return nil, a.timedOut()
		}
		update.reset()
		got, err := a.ask(left, subscription.channel, a.engine.timeout)
		switch {
		case errors.Is(err, errWaiting):
			if message == "granted" { // the claim came too late: the server skips this channel until a command names it
				subscription.sendAgain()
			}
			if message, err = a.awaitMessage(update); err != nil {
				return nil, err
			}
		case got != nil || err != nil:
			return got, err
		default:
			a.mayBeQueued = a.mayRun
			if a.left() > slack {
				return nil, refusedError(a.request.name)
			}
		}
	}
}

// mayJoin reports whether the attempt can ask the script with NOTIFY now. A release removes attempts whose channel has
// no subscriber from the script's queue.
func (a *attempt) mayJoin() bool {
	isUp, _ := a.engine.subscription.state()
	return isUp || a.hasPlace
}

// awaitMessage waits until the request should be resent. It returns the message that prompted it, if there is one.
func (a *attempt) awaitMessage(update *updates) (string, error) {
	asked := a.engine.now()
	for {
		if err := a.over(); err != nil {
			return "", err
		}
		span := a.asksAgain
		isUp, isRefused := a.engine.subscription.state()
		if isRefused {
			return "", nil
		}
		if !isUp {
			span = min(span, resendDown)
		}
		at := a.engine.now()
		left := min(asked+span-at, update.retryAt()-at, a.left())
		if left <= 0 {
			return "", nil
		}
		switch kind := update.wait(a.ctx, a.engine.closed, left); kind {
		case "":
		case "cancelled":
			a.mayBeQueued = false
			return "", refusedError(a.request.name)
		case "timeout":
			if a.left() <= slack {
				a.mayBeQueued = false
				return "", a.timedOut()
			}
			return kind, nil
		default:
			return kind, nil
		}
	}
}

// byBlockingAlone blocks as the manager's only waiter. It returns errNotAlone if there is another one.
func (a *attempt) byBlockingAlone() (*grant, error) {
	e := a.engine
	if a.request.wait == 0 || a.request.needsConnection() || e.isPortable() || !e.notifies.Load() || !e.blocking.enter() {
		return nil, errNotAlone
	}
	a.isBlocking = true
	defer func() {
		a.isBlocking = false
		e.blocking.leave()
	}()
	return a.byBlocking()
}

// byBlocking waits in pieces, because there are few connections and a lost reply must be noticed.
func (a *attempt) byBlocking() (*grant, error) {
	for a.left() > 0 {
		if a.isBlocking && a.engine.blocking.hasEnded() {
			return nil, errNotAlone
		}
		got, isCancelled, err := a.onePiece()
		switch {
		case err != nil:
			if _, ok := as[*connectionLost](err); !ok {
				return nil, err
			}
			if err := a.pauseAfter(err); err != nil {
				return nil, err
			}
		case got != nil:
			isHeld, err := a.restartLease(got)
			if isHeld || err != nil {
				return got, err
			}
		case isCancelled:
			a.mayBeQueued = false
			return nil, refusedError(a.request.name)
		}
	}
	return nil, a.timedOut()
}

func (a *attempt) onePiece() (got *grant, isCancelled bool, err error) {
	a.needsConn = true
	defer func() {
		a.needsConn = a.request.needsConnection()
		if a.ctx.Err() != nil && a.conn != nil {
			a.conn.close()
		}
		if !a.needsConn {
			a.giveBackConnection()
		}
	}()
	if a.dedicated() == nil {
		if err := a.takeConnection(); err != nil {
			return nil, false, err
		}
	}
	longest := piece
	if a.isBlocking {
		longest = blockingPiece
	} else if a.engine.connections.hasWaiters() {
		longest = sharedPiece
	}
	span := max(time.Millisecond, min(a.left(), longest))
	began := a.engine.now()
	got, err = a.ask(span, "", span+a.engine.timeout)
	if err != nil {
		return nil, false, err
	}
	if a.noNotify { // only the plain form works here
		a.engine.notifies.Store(false)
	}
	a.wasQueued = true
	// LOCK.CANCEL, or CLIENT UNBLOCK
	isCancelled = got == nil && a.engine.now() < began+span-slack && a.left() > slack
	return got, isCancelled, nil
}

// restartLease extends a grant that may be old, because it was made at an unknown time during a blocking call. The
// EXTEND starts a new lease. restartLease reports whether the lock is still held.
func (a *attempt) restartLease(got *grant) (bool, error) {
	for a.engine.now() >= got.sent+a.request.lease/3 {
		sent := a.engine.now()
		reply, err := a.engine.router.call(
			a.ctx, a.request.key(), a.request.extend(got.token, a.request.lease).words(), a.engine.timeout)
		if gone, ok := as[*abandoned](err); ok {
			a.inFlight = gone
			return false, givenUp(a.ctx, a.request.name)
		}
		if err != nil {
			if err := a.pauseAfter(err); err != nil {
				return false, err
			}
			continue
		}
		got.sent = sent
		return reply == int64(1), nil
	}
	return true, nil
}

// poll asks the script repeatedly, if it has no queue for this lock or the user cannot wait for messages.
func (a *attempt) poll() (*grant, error) {
	for a.left() > 0 {
		a.engine.pause(a.ctx, min(untilNextPoll(), a.left()))
		got, err := a.ask(0, "", a.engine.timeout)
		if got != nil || err != nil {
			return got, err
		}
		if !a.isPortable || a.mayNotify() {
			return nil, errMoved
		}
	}
	return nil, a.timedOut()
}

func untilNextPoll() time.Duration { return 50*time.Millisecond + rand.N(100*time.Millisecond) }
