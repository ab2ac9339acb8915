package serverlock

import (
	"context"
	"sync"
	"time"
)

// hold is one grant, as its holder sees it: how long it is good for on the holder's own watch, and whether it was lost.
// Renewal, loss and release meet here from several goroutines. It does not know the [Held] that users have, so that one
// that was dropped is noticed.
type hold struct {
	engine         *engine
	request        *request
	token          int64
	predecessor    *Predecessor
	began, granted time.Duration
	line           *line // of a session
	ctx            context.Context
	cancel         context.CancelCauseFunc

	mu         sync.Mutex
	sent       time.Duration // what the lease counts from
	lease      time.Duration
	isPortable bool
	isEnded    bool // released
	isDropped  bool // nobody refers to it any more
	isGone     bool // the server has said that the grant is over
	isRenewing bool
	onTheirWay int           // EXTENDs
	least      time.Duration // when the lease ends that ends first of them
	lostWhy    *Error

	entry uint64 // the number of its entry in the timer, which guards it
}

func newHold(e *engine, r *request, got *grant, began time.Duration) *hold {
	h := &hold{
		engine: e, request: r, token: got.token, predecessor: got.predecessor, began: began, granted: now(),
		line: got.line, sent: got.sent, lease: r.lease, isPortable: got.isPortable,
	}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	return h
}

// lostAt is a tenth of the lease before its end. mu is held.
func (h *hold) lostAt() time.Duration {
	if h.request.timed {
		return h.sent + h.lease
	}
	return h.sent + h.lease - h.lease/10
}

// renewAt: mu is held.
func (h *hold) renewAt() time.Duration { return h.sent + h.lease/3 }

// lost gives why the lock is lost; nil while it is held, and after it was released in time.
func (h *hold) lost() *Error {
	h.mu.Lock()
	isLate := h.lostWhy == nil && !h.isEnded && now() >= h.lostAt()
	h.mu.Unlock()
	if isLate {
		h.lose("its lease was not renewed in time", false)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lostWhy
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
	return max(0, h.lostAt()-now())
}

// lose: the lock is over without having been released. Its user is told once.
func (h *hold) lose(why string, isGone bool) {
	h.mu.Lock()
	h.isGone = h.isGone || isGone
	if h.lostWhy != nil || h.isEnded || h.isDropped {
		h.mu.Unlock()
		return
	}
	lost := failed(ErrLost, h.request.name, "lost: "+why)
	h.lostWhy = lost
	h.mu.Unlock()
	h.cancel(lost)
	go h.engine.lost(h, lost)
}

// taken: the server does not know the grant any more.
func (h *hold) taken() error {
	h.lose("somebody has taken it away", true)
	return h.check()
}

// extending: an EXTEND is on its way. Its reply may be lost, so a lease that ends earlier counts at once. Of those that
// are on their way together nobody knows which the server does last: the one that ends first counts.
func (h *hold) extending(sent, lease time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.onTheirWay == 0 {
		h.least = Forever
	}
	h.onTheirWay++
	h.least = min(h.least, sent+lease)
	if sent+lease < h.sent+h.lease {
		h.sent, h.lease = sent, lease
	}
}

// extended: what became of it.
func (h *hold) extended(sent, lease time.Duration, isDone bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.onTheirWay--
	if isDone && h.lostWhy == nil {
		h.sent, h.lease = sent, min(sent+lease, h.least)-sent
	}
}

func (h *hold) portable() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isPortable
}

// end marks it as released. It reports whether it was not before, whether it was lost, and whether its grant is gone.
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

// drop: nobody refers to it any more, so it is not renewed. A session ends.
func (h *hold) drop() {
	h.mu.Lock()
	h.isDropped = true
	isEnded := h.isEnded
	h.mu.Unlock()
	if !isEnded {
		h.engine.timer.forget()
		h.engine.endSession(h)
	}
}

// needsRenewal tells the timer what is due: whether to go on with it, whether to renew it now, and when it is lost.
func (h *hold) needsRenewal() (goesOn, renews bool, lostAt time.Duration) {
	if h.check() != nil {
		return false, false, 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isDropped {
		return false, false, 0
	}
	time := now()
	mayRenew := !h.engine.isClosed() && (h.request.maxHold == 0 || time < after(h.granted, h.request.maxHold))
	renews = mayRenew && !h.isRenewing && time >= h.renewAt()
	h.isRenewing = h.isRenewing || renews
	return true, renews, h.lostAt()
}

func releasedError(key string) *Error { return failed(ErrLost, key, "it was released") }
