package serverlock

import (
	"context"
	"fmt"
	"time"
)

// The lease of an EXTEND is counted from when the server runs it, so one that takes longer is sent again.
const lateExtend = 250 * time.Millisecond

// keep ends a hold whose lock stays until then, by the lease clock. If that time has passed, the lock is released.
// isLong: the lease already ends then. The error is nil if the lock was held to the end of the hold.
func (e *engine) keep(h *hold, until time.Duration, isLong bool) error {
	return e.leave(h, func(wasLost bool) (wasHeld bool, err error) {
		switch {
		case wasLost || e.now() >= until:
			return e.releaseNow(context.Background(), h)
		case isLong:
			return true, nil
		}
		return e.keepNow(h, until)
	})
}

// keepNow tries for as long as a call may take; then it continues in the background until the lease should end.
func (e *engine) keepNow(h *hold, until time.Duration) (wasHeld bool, err error) {
	end := e.now() + e.timeout
	// A renewal that the server runs after this EXTEND would shorten the lease.
	isIdle := h.awaitIdle(e.timeout)
	for tries := 1; ; tries++ {
		reply, err := e.extendUntil(h, until)
		switch {
		case err == nil:
			if reply == int64(1) && (tries > 1 || !isIdle) {
				e.keepOnceMore(h, until)
			}
			return reply == int64(1), nil
		case !isTransient(err):
			return false, typed(err, h.request.name)
		case e.now() >= end:
			e.keepInBackground(h, until, func() { e.keepOnceMore(h, until) })
			e.warn(fmt.Sprintf("the lock %s is kept for its period in the background", h.request.name), "error", err)
			return true, nil
		}
		e.sleep(min(20*time.Millisecond*time.Duration(tries), 200*time.Millisecond))
	}
}

// keepOnceMore sends a last copy later, because a copy without a reply may run late.
func (e *engine) keepOnceMore(h *hold, until time.Duration) {
	e.timer.later(e.now()+lateCopy, func() { e.keepInBackground(h, until, func() {}) })
}

// keepInBackground keeps a hold's lock in the background, and calls kept once it has done so.
func (e *engine) keepInBackground(h *hold, until time.Duration, kept func()) {
	if e.now() >= until {
		return
	}
	e.timer.owe(until, func(context.Context) error {
		reply, err := e.extendUntil(h, until)
		switch {
		case err != nil && isTransient(err):
			return err
		case err != nil:
			e.warn(fmt.Sprintf("the lock %s could not be kept for its period", h.request.name), "error", err)
		case reply == int64(0):
			e.warn(fmt.Sprintf("the lock %s expired before it could be kept for its period", h.request.name))
		default:
			kept()
		}
		return nil
	})
}

// extendUntil sets a lease that ends at until. An EXTEND that took a long time is sent again, at most twice.
func (e *engine) extendUntil(h *hold, until time.Duration) (reply any, err error) {
	for range 3 {
		sent := e.now()
		lease := (until - sent + time.Millisecond - 1).Truncate(time.Millisecond)
		reply, err = e.sent(context.Background(), h, h.request.extend(h.token, lease))
		if err != nil || reply != int64(1) || e.now() <= sent+lateExtend {
			break
		}
	}
	return reply, err
}
