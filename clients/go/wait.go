package serverlock

import (
	"math/rand/v2"
	"time"
)

const (
	piece        = 5 * time.Second
	soloPiece    = 2 * time.Second
	crowdedPiece = time.Second
	resend       = 5 * time.Second
	resendDown   = time.Second
	// A server whose clock runs a little ahead ends a wait a little early.
	slack = 100 * time.Millisecond
)

// byNotify stands in line without a connection, and claims the lock when the server says that it is granted.
func (a *attempt) byNotify() (*grant, error) {
	subscription := a.engine.subscription
	a.engine.solo.end()
	news := subscription.register(a.id, a.request.key())
	defer subscription.unregister(a.id)
	if _, isRefused := subscription.ready(a.ctx, news, min(resendDown, a.left())); isRefused {
		a.engine.notifies.Store(false)
		return nil, errNoNotify
	}
	heard := ""
	for {
		left := a.left()
		if left <= 0 {
			return nil, a.timedOut()
		}
		news.forget()
		got, err := a.ask(left, subscription.channel, a.engine.timeout)
		switch {
		case err == errStanding:
			if heard == "granted" { // too late: the server passes this process over until it hears from it
				subscription.sendAgain()
			}
			if heard, err = a.hear(news); err != nil {
				return nil, err
			}
		case got != nil || err != nil:
			return got, err
		default:
			a.mayStand = false
			if a.left() > slack {
				return nil, refusedError(a.request.name)
			}
		}
	}
}

// hear returns when it is time to send it again, with the message that says so, if one does.
func (a *attempt) hear(news *news) (string, error) {
	asked := now()
	for {
		if err := a.over(); err != nil {
			return "", err
		}
		span := resend
		if isUp, _ := a.engine.subscription.state(); !isUp {
			span = resendDown
		}
		time := now()
		left := min(asked+span-time, news.againAt()-time, a.left())
		if left <= 0 {
			return "", nil
		}
		switch kind := news.wait(a.ctx, a.engine.closed, left); kind {
		case "":
		case "cancelled":
			a.mayStand = false
			return "", refusedError(a.request.name)
		case "timeout":
			if a.left() <= slack {
				a.mayStand = false
				return "", a.timedOut()
			}
			return kind, nil
		default:
			return kind, nil
		}
	}
}

// alone waits as the only attempt of the manager. errNotAlone: it is not, or no longer.
func (a *attempt) alone() (*grant, error) {
	e := a.engine
	if a.request.wait == 0 || a.request.needsLine() || !e.notifies.Load() || !e.solo.enter() {
		return nil, errNotAlone
	}
	a.isSolo = true
	defer func() {
		a.isSolo = false
		e.solo.leave()
	}()
	return a.byBlocking()
}

// byBlocking waits in pieces: lines are few, and a reply that is lost is noticed after one.
func (a *attempt) byBlocking() (*grant, error) {
	for a.left() > 0 {
		if a.isSolo && a.engine.solo.hasEnded() {
			return nil, errNotAlone
		}
		got, isCancelled, err := a.onePiece()
		switch {
		case err != nil:
			if _, isBroken := err.(*broken); !isBroken {
				return nil, err
			}
			if err := a.pauseAfter(err); err != nil {
				return nil, err
			}
		case got != nil:
			isOurs, err := a.countAnew(got)
			if isOurs || err != nil {
				return got, err
			}
		case isCancelled:
			a.mayStand = false
			return nil, refusedError(a.request.name)
		}
	}
	return nil, a.timedOut()
}

func (a *attempt) onePiece() (got *grant, isCancelled bool, err error) {
	a.usesLine = true
	defer func() {
		a.usesLine = a.request.needsLine()
		if a.ctx.Err() != nil && a.line != nil {
			a.line.close()
		}
		if !a.usesLine {
			a.giveBackLine()
		}
	}()
	if a.line == nil {
		if err := a.takeLine(); err != nil {
			return nil, false, err
		}
	}
	longest := piece
	if a.isSolo {
		longest = soloPiece
	} else if a.engine.lines.isCrowded() {
		longest = crowdedPiece
	}
	span := max(time.Millisecond, min(a.left(), longest))
	began := now()
	got, err = a.ask(span, "", span+a.engine.timeout)
	if err != nil {
		return nil, false, err
	}
	if a.noNotify { // the plain form is what works here
		a.engine.notifies.Store(false)
	}
	a.stood = true
	// LOCK.CANCEL, or CLIENT UNBLOCK
	isCancelled = got == nil && now() < began+span-slack && a.left() > slack
	return got, isCancelled, nil
}

// countAnew: the grant may be as old as the call. If that is long, its lease counts from an EXTEND. It reports whether
// the grant still stands.
func (a *attempt) countAnew(got *grant) (bool, error) {
	for now() >= got.sent+a.request.lease/3 {
		sent := now()
		reply, err := a.engine.router.call(
			a.ctx, a.request.key(), a.request.extend(got.token, a.request.lease), a.engine.timeout)
		if gone, isAbandoned := err.(*abandoned); isAbandoned {
			a.settled = gone.settled
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

// exchanged is one exchange of the portable script.
func (a *attempt) exchanged(words []any) (any, error) { return a.exchange(words, a.engine.timeout) }

// poll asks by script, where the module is not loaded. errAskForModule: it has not been asked for lately.
func (a *attempt) poll() (*grant, error) {
	if what := a.request.needsModule(); what != "" {
		return nil, failed(ErrUnavailable, a.request.name, what+" needs the module, which is not loaded")
	}
	for a.engine.isPortable() {
		sent := now()
		reply, err := a.engine.portable.acquire(a.exchanged, a.request, a.id)
		if err != nil {
			if err := a.pauseAfter(err); err != nil {
				return nil, err
			}
			continue
		}
		a.tries = 0
		got, err := a.granted(reply, sent)
		if got != nil || err != nil {
			return got, err
		}
		a.mayStand = false
		if a.left() <= 0 {
			if a.request.wait > 0 {
				return nil, a.timedOut()
			}
			return nil, refusedError(a.request.name)
		}
		pause(a.ctx, a.engine.closed, min(50*time.Millisecond+rand.N(100*time.Millisecond), a.left()))
	}
	return nil, errAskForModule
}
