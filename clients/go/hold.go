package serverlock

import (
	"context"
	"sync"
	"time"
)

// hold is one grant as its holder sees it: when its lease ends by the local clock, and whether it was lost. Renewal,
// loss and release run in different goroutines and meet here. It does not refer to the user's [Held], so that a
// dropped Held can be detected.
type hold struct {
	engine         *engine
	request        *request
	watching       *watching
	token          int64
	predecessor    *Predecessor
	began, granted time.Duration
	requested      time.Duration // when the granted request was sent
	session        *session
	isUnshared     bool // of [Once] or [SingleFlight]: nobody gets it again
	ctx            context.Context
	cancel         context.CancelCauseFunc

	mu         sync.Mutex
	sent       time.Duration // the lease counts from here
	lease      time.Duration
	isPortable bool
	again      int  // how many times it was acquired again
	isEnded    bool // released
	isDropped  bool // the Held has been garbage collected
	isGone     bool // the grant has ended on the server
	isRenewing bool
	inFlight   int           // EXTENDs
	earliest   time.Duration // the earliest end of their leases
	failedAt   time.Duration // when an EXTEND last failed: the server may still run it for lateCopy
	idle       chan struct{} // closed once no EXTEND is in flight; nil if nobody waits for that
	lossReason *Error
	result     []byte        // passed on to the waiters on release; nil: no result
	storedBy   time.Duration // the result is not stored later: somebody else may have the lock

	entry uint64 // the number of its newest entry; guarded by the timer
}

func newHold(e *engine, r *request, got *grant, began time.Duration) *hold {
	h := &hold{
		engine: e, request: r, token: got.token, predecessor: got.predecessor, began: began, granted: e.now(),
		requested: got.sent, session: got.session, sent: got.sent, lease: r.lease, isPortable: got.isPortable,
		failedAt: -lateCopy,
	}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	return h
}

// lostAt is a tenth of the lease before the lease ends. The caller holds mu.
func (h *hold) lostAt() time.Duration {
	if h.request.timed {
		return h.sent + h.lease
	}
	return h.sent + h.lease - h.lease/10
}

// renewAt is when a third of the lease has passed. The caller holds mu.
func (h *hold) renewAt() time.Duration { return h.sent + h.lease/3 }

// lost returns why the lock is lost; nil while it is held, or if it was released in time.
func (h *hold) lost() *Error {
	h.mu.Lock()
	isLate := h.lossReason == nil && !h.isEnded && h.engine.now() >= h.lostAt()
	h.mu.Unlock()
	if isLate {
		h.lose("its lease was not renewed in time", false)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lossReason
}

func (h *hold) check() error {
	if lost := h.lost(); lost != nil {
		return lost
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isEnded {
		return releasedError(h.request.name)
	}
	return nil
}

func (h *hold) left() time.Duration {
	if h.check() != nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(0, h.lostAt()-h.engine.now())
}

// lose ends the hold without a release. The user is notified once.
func (h *hold) lose(why string, isGone bool) {
	h.mu.Lock()
	h.isGone = h.isGone || isGone
	if h.lossReason != nil || h.isEnded || h.isDropped {
		h.mu.Unlock()
		return
	}
	lost := failed(ErrLost, h.request.name, "lost: "+why)
	h.lossReason = lost
	h.mu.Unlock()
	h.cancel(lost)
	go h.engine.lost(h, lost)
}

// loseSession is called when the connection of the session has ended.
func (h *hold) loseSession() { h.lose("the connection of its session has closed", true) }

// taken is called when the server no longer has the grant.
func (h *hold) taken() error {
	h.lose("somebody else has taken it", true)
	return h.check()
}

// enterAgain counts a repeated Acquire; it reports whether the lock is held.
func (h *hold) enterAgain() bool {
	if h.check() != nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	isHeld := !h.isEnded && h.lossReason == nil
	if isHeld {
		h.again++
	}
	return isHeld
}

// leaveAgain reports whether a Release belongs to a repeated Acquire, so the hold continues.
func (h *hold) leaveAgain() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	goesOn := !h.isEnded && h.again > 0
	if goesOn {
		h.again--
	}
	return goesOn
}

// extending is called before an EXTEND is sent. It reports whether it may be sent: not if the hold has ended. Its reply
// may be lost, so a shorter lease takes effect at once. If several are in flight, the server may run them in any order,
// so the earliest end applies.
func (h *hold) extending(sent, lease time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isEnded {
		return false
	}
	if h.inFlight == 0 {
		h.earliest = Forever
	}
	h.inFlight++
	h.earliest = min(h.earliest, sent+lease)
	if sent+lease < h.sent+h.lease {
		h.sent, h.lease = sent, lease
	}
	return true
}

// extended is called with the outcome of that EXTEND.
func (h *hold) extended(sent, lease time.Duration, isDone bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inFlight--
	if isDone && h.lossReason == nil {
		h.sent, h.lease = sent, min(sent+lease, h.earliest)-sent
	}
	if !isDone {
		h.failedAt = h.engine.now()
	}
	if h.inFlight == 0 && h.idle != nil {
		close(h.idle)
		h.idle = nil
	}
}

// awaitIdle waits until no EXTEND is in flight. It reports whether the server can no longer run an earlier one.
func (h *hold) awaitIdle(timeout time.Duration) bool {
	h.mu.Lock()
	idle := h.idle
	if h.inFlight > 0 && idle == nil {
		idle = make(chan struct{})
		h.idle = idle
	}
	h.mu.Unlock()
	if idle != nil {
		timer := h.engine.clock.NewTimer(timeout)
		defer timer.Stop()
		select {
		case <-idle:
		case <-timer.C():
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.inFlight == 0 && h.engine.now() >= h.failedAt+lateCopy
}

func (h *hold) portable() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isPortable
}

// end marks the hold as released. It reports whether this was the first call, whether the lock was lost, and whether
// the server has already ended the grant.
func (h *hold) end() (isFirst, wasLost, isGone bool) {
	wasLost = h.lost() != nil
	h.mu.Lock()
	isFirst, h.isEnded = !h.isEnded, true
	isGone = h.isGone
	h.mu.Unlock()
	if isFirst {
		h.cancel(releasedError(h.request.name))
	}
	return isFirst, wasLost, isGone
}

// drop is called once the Held has been garbage collected: the lease is no longer renewed, and a session ends.
func (h *hold) drop() {
	h.mu.Lock()
	h.isDropped = true
	isEnded, isLost := h.isEnded, h.lossReason != nil
	h.mu.Unlock()
	if !isEnded && !isLost {
		h.watching.ended(EndExpired, nil)
	}
	if !isEnded {
		h.engine.timer.forget()
		h.engine.endSession(h)
	}
}

// needsRenewal tells the timer whether to keep the hold, whether to renew it now, and when it will be lost.
func (h *hold) needsRenewal() (goesOn, renews bool, lostAt time.Duration) {
	if h.check() != nil {
		return false, false, 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isDropped {
		return false, false, 0
	}
	at := h.engine.now()
	mayRenew := !h.engine.isClosed() && (h.request.maxHold == 0 || at < after(h.granted, h.request.maxHold))
	renews = mayRenew && !h.isRenewing && at >= h.renewAt()
	h.isRenewing = h.isRenewing || renews
	return true, renews, h.lostAt()
}

// setResult sets what those that wait get when the lock is released.
func (h *hold) setResult(value []byte) {
	isHeld := h.check() == nil
	h.mu.Lock()
	defer h.mu.Unlock()
	h.result = value
	if isHeld {
		h.storedBy = h.lostAt()
	}
}

func releasedError(key string) *Error { return failed(ErrLost, key, "it was released") }
