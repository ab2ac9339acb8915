package serverlock

import (
	"container/heap"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"example.com/serverlock/internal/clock"
)

const (
	debtPause   = 250 * time.Millisecond
	sweepsAfter = 1000
)

// timer is one timer for all of a manager's holds, and for debts: releases and cancellations that failed and are
// retried in the background. It has no goroutine while nothing is due.
type timer struct {
	engine *engine

	mu      sync.Mutex
	entries entries
	count   uint64
	stale   int
	timer   clock.Timer
	wakesAt time.Duration
}

// entry is a hold to check, or work to run.
type entry struct {
	at     time.Duration
	number uint64
	hold   *hold
	work   func()
}

func newTimer(e *engine) *timer {
	return &timer{engine: e, wakesAt: Forever}
}

func (t *timer) add(h *hold) {
	if h.request.timed {
		return
	}
	h.mu.Lock()
	at := h.renewAt()
	h.mu.Unlock()
	t.again(h, at)
}

// again schedules a check of the hold. Only the newest entry of a hold has an effect.
func (t *timer) again(h *hold, at time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count++
	h.entry = t.count
	t.push(entry{at: at, number: t.count, hold: h})
}

func (t *timer) later(at time.Duration, work func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.push(entry{at: at, work: work})
}

// owe retries the debt in the background until it succeeds or the time has passed.
func (t *timer) owe(until time.Duration, debt func(ctx context.Context) error) {
	go func() {
		err := debt(context.Background())
		if err == nil || t.engine.isClosed() || t.engine.now() >= until {
			return
		}
		if lost, ok := as[*connectionLost](err); ok && lost.final {
			return
		}
		t.later(t.engine.now()+debtPause, func() { t.owe(until, debt) })
	}()
}

// forget counts a hold that ended before its entry was due. Once most entries are stale, the stale ones are removed.
func (t *timer) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stale++
	if (t.stale <= sweepsAfter || t.stale*2 <= len(t.entries)) && !t.engine.isClosed() {
		return
	}
	t.stale = 0
	t.entries = slices.DeleteFunc(t.entries, func(e entry) bool {
		if e.hold == nil {
			return false
		}
		e.hold.mu.Lock()
		defer e.hold.mu.Unlock()
		return e.hold.isEnded || e.hold.isDropped || e.number != e.hold.entry
	})
	heap.Init(&t.entries)
}

// close stops renewals. Losses are still reported.
func (t *timer) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries = slices.DeleteFunc(t.entries, func(e entry) bool { return e.hold == nil })
	heap.Init(&t.entries)
}

// push adds an entry. The caller holds mu.
func (t *timer) push(one entry) {
	if one.hold == nil && t.engine.isClosed() {
		return
	}
	heap.Push(&t.entries, one)
	t.set()
}

// set starts the timer for the earliest entry. The caller holds mu.
func (t *timer) set() {
	if len(t.entries) == 0 || t.entries[0].at >= t.wakesAt {
		return
	}
	t.wakesAt = t.entries[0].at
	span := max(0, t.wakesAt-t.engine.now())
	if t.timer == nil {
		t.timer = t.engine.clock.AfterFunc(span, t.run)
	} else {
		t.timer.Reset(span)
	}
}

func (t *timer) run() {
	t.mu.Lock()
	t.wakesAt = Forever
	at := t.engine.now()
	var due []entry
	for len(t.entries) > 0 && t.entries[0].at <= at {
		one := heap.Pop(&t.entries).(entry)
		if one.hold == nil || one.number == one.hold.entry {
			due = append(due, one)
		}
	}
	t.set()
	t.mu.Unlock()
	for _, one := range due {
		if one.hold == nil {
			one.work()
		} else if goesOn, renews, lostAt := one.hold.needsRenewal(); goesOn {
			t.again(one.hold, lostAt) // before the renewal, whose outcome replaces this entry
			if renews {
				go t.renew(one.hold)
			}
		}
	}
}

func (t *timer) renew(h *hold) {
	e := t.engine
	h.mu.Lock()
	lostAt := h.lostAt()
	h.mu.Unlock()
	sent := t.engine.now()
	timeout := max(50*time.Millisecond, min(e.timeout, (lostAt-sent)/2))
	lease := h.request.lease
	if !h.extending(sent, lease) {
		return
	}
	reply, err := e.sendOnce(context.Background(), h, h.request.extend(h.token, lease), timeout)
	h.extended(sent, lease, err == nil && reply == int64(1))
	h.mu.Lock()
	h.isRenewing = false
	isOver := h.isEnded || h.isDropped || h.lossReason != nil
	h.mu.Unlock()
	switch {
	case isOver:
	case err == nil && reply == int64(1):
		t.add(h)
	case err == nil:
		h.lose("somebody else has taken it", true)
	default:
		e.missed(h, err)
		e.warn(fmt.Sprintf("renewing the lock %s failed; trying again", h.request.name), "error", err)
		t.again(h, min(lostAt, t.engine.now()+max(lease/20, 10*time.Millisecond)))
	}
}

// entries implements heap.Interface.
type entries []entry

func (e entries) Len() int           { return len(e) }
func (e entries) Less(i, j int) bool { return e[i].at < e[j].at }
func (e entries) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *entries) Push(one any)      { *e = append(*e, one.(entry)) }
func (e *entries) Pop() any {
	last := (*e)[len(*e)-1]
	(*e)[len(*e)-1] = entry{}
	*e = (*e)[:len(*e)-1]
	return last
}
