package serverlock

import (
	"context"
	"fmt"
	"time"
)

// release releases a lock. The error is nil if it was held to the end.
func (e *engine) release(ctx context.Context, h *hold) error {
	return e.leave(h, func(wasLost bool) (wasHeld bool, err error) {
		if wait := h.granted + h.request.atLeast - e.now(); wait > 0 && !wasLost {
			return e.releaseLater(ctx, h, wait)
		}
		return e.releaseNow(ctx, h)
	})
}

// leave ends a hold, once. settle then releases or keeps its lock, unless the server has already ended the grant, and
// reports whether the lock was held until then. The error is nil if it was.
func (e *engine) leave(h *hold, settle func(wasLost bool) (wasHeld bool, err error)) error {
	isFirst, wasLost, isGone := h.end()
	if !isFirst {
		return failed(ErrMisuse, h.request.name, "it was released before")
	}
	e.timer.forget()
	defer e.endSession(h)
	var wasHeld bool
	var err error
	if !isGone {
		wasHeld, err = settle(wasLost)
	}
	wasHeld = wasHeld && !wasLost
	if e.hooks.Released != nil {
		e.hooks.Released(h.request.name, e.now()-h.granted, wasHeld)
	}
	lost := h.lost()
	if !wasHeld && lost == nil {
		lost = failed(ErrLost, h.request.name, "lost: its grant had ended before it was released")
	}
	if wasHeld {
		h.watching.ended(EndReleased, nil)
	} else {
		h.watching.ended(EndLost, lost)
	}
	switch {
	case err != nil:
		return err
	case wasHeld:
		return nil
	}
	return lost
}

// releaseNow retries for at most one call's time-out; after that, the release continues in the background until the
// lease ends.
func (e *engine) releaseNow(ctx context.Context, h *hold) (wasHeld bool, err error) {
	h.mu.Lock()
	lostAt, leaseEnds := h.lostAt(), h.sent+h.lease
	h.mu.Unlock()
	end := min(e.now()+e.timeout, lostAt)
	for tries := 1; ; tries++ {
		reply, err := e.sendRelease(ctx, h)
		switch {
		case err == nil && h.request.wasHeld(reply):
			return true, nil
		case err == nil:
			// The first try may have released the lock.
			return reply == int64(0) && tries > 1 && e.now() < lostAt, nil
		case e.missed(h, err):
			tries--
			continue
		case !isTransient(err):
			return false, typed(err, h.request.name)
		case e.now() >= end:
			e.timer.owe(leaseEnds, func(ctx context.Context) error { return e.settleRelease(ctx, h) })
			e.warnOfRelease(h, err)
			return e.now() < lostAt, nil
		}
		e.sleep(min(20*time.Millisecond*time.Duration(tries), 200*time.Millisecond))
	}
}

// giveUp releases a lock in the background.
func (e *engine) giveUp(h *hold) {
	if _, wasLost, _ := h.end(); !wasLost {
		h.watching.ended(EndReleased, nil)
	}
	e.timer.forget()
	h.mu.Lock()
	leaseEnds := h.sent + h.lease
	h.mu.Unlock()
	e.timer.owe(leaseEnds, func(ctx context.Context) error { return e.settleRelease(ctx, h) })
}

func (e *engine) settleRelease(ctx context.Context, h *hold) error {
	_, err := e.sendRelease(ctx, h)
	e.missed(h, err)
	return err
}

// sendRelease sends one RELEASE, with the holder's result if there is one. If the server refuses the result, which may
// be too long, the lock is released without it.
func (e *engine) sendRelease(ctx context.Context, h *hold) (any, error) {
	h.mu.Lock()
	result, isPortable, isLate := h.result, h.isPortable, e.now() >= h.storedBy
	h.mu.Unlock()
	if result != nil && isPortable && !isLate {
		e.store(ctx, h, result)
	}
	reply, err := e.sendOnce(ctx, h, h.request.releaseWith(h.token, result), e.timeout)
	if refusal, ok := as[*replyError](err); ok && result != nil && refusal.code == "ERR" && !refusal.isUnknownCommand() {
		h.setResult(nil)
		return e.sendOnce(ctx, h, h.request.release(h.token), e.timeout)
	}
	return reply, err
}

func (e *engine) warnOfRelease(h *hold, err error) {
	e.warn(fmt.Sprintf("the lock %s is released in the background", h.request.name), "error", err)
}

// releaseLater shortens the lease to what is left of AtLeast; the timer then releases the lock.
func (e *engine) releaseLater(ctx context.Context, h *hold, wait time.Duration) (wasHeld bool, err error) {
	h.mu.Lock()
	lostAt, until := h.lostAt(), h.sent+h.lease
	h.mu.Unlock()
	reply, err := e.sent(ctx, h, h.request.extend(h.token, wait))
	if err != nil && !isTransient(err) {
		return false, typed(err, h.request.name)
	}
	at := e.now() + wait
	if err == nil {
		until = at + time.Second
	}
	e.timer.later(at, func() {
		e.timer.owe(until, func(ctx context.Context) error { return e.settleRelease(ctx, h) })
	})
	if err != nil {
		e.warnOfRelease(h, err)
		return e.now() < lostAt, nil
	}
	return reply == int64(1), nil
}
