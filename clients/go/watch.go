package serverlock

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A Watch follows one attempt and the lock that it gets. One of Granted, Failed and Result is called, in the goroutine
// that asks, before the call returns. After Granted, Ended is called once, in any goroutine. A nil function is not
// called.
//
// command is the command that the last copy of the request used, or the function of the script.
type Watch struct {
	// Granted: the attempt got the lock.
	Granted func(command string, token int64, waited time.Duration)
	// Failed: the attempt got nothing. err is what the caller gets; its code is cancelled if the context was done.
	Failed func(command string, waited time.Duration, err *Error)
	// Result: the attempt got the result of another holder in place of the lock. Granted, Refused, Lost and Released
	// of [Hooks] are not called for it.
	Result func(command string, waited time.Duration)
	// Ended: the lock is no longer held. err is the loss, or nil.
	Ended func(end End, held time.Duration, err *Error)
}

// End says how a hold ended.
type End string

const (
	// EndReleased: it was released in time.
	EndReleased End = "released"
	// EndLost: it was lost, or its release found that the grant had ended before.
	EndLost End = "lost"
	// EndExpired: its [Held] was garbage collected without a release, so the lease is no longer renewed.
	EndExpired End = "expired"
)

// watching calls a Watch: first a result, then perhaps one end. A nil watching calls nothing.
type watching struct {
	watch   Watch
	engine  *engine
	request *request
	began   time.Duration

	mu      sync.Mutex
	granted time.Duration
	isOver  bool
}

// watchAttempt is called before anything is sent.
func (e *engine) watchAttempt(ctx context.Context, r *request, began time.Duration) *watching {
	if e.hooks.Began == nil {
		return nil
	}
	return &watching{watch: e.hooks.Began(ctx, slices.Clone(r.keys)), engine: e, request: r, began: began}
}

func (w *watching) command(isPortable bool) string {
	command := w.request.acquire("", 0, "").command
	if isPortable {
		return functions[command]
	}
	return command
}

// hasGrant is called before the hold can end.
func (w *watching) hasGrant(h *hold) {
	if w == nil {
		return
	}
	w.granted = h.granted
	if w.watch.Granted != nil {
		w.watch.Granted(w.command(h.isPortable), h.token, h.granted-w.began)
	}
}

// hasNone is called with the error of the attempt.
func (w *watching) hasNone(isPortable bool, err error) {
	if w == nil {
		return
	}
	waited := w.engine.now() - w.began
	if ours, isError := as[*Error](err); !isError { // any other error carries a result
		if w.watch.Result != nil {
			w.watch.Result(w.command(isPortable), waited)
		}
	} else if w.watch.Failed != nil {
		w.watch.Failed(w.command(isPortable), waited, ours)
	}
}

// ended is called when the hold has ended. Only the first call counts.
func (w *watching) ended(end End, err *Error) {
	if w == nil {
		return
	}
	w.mu.Lock()
	wasOver := w.isOver
	w.isOver = true
	w.mu.Unlock()
	if !wasOver && w.watch.Ended != nil {
		w.watch.Ended(end, w.engine.now()-w.granted, err)
	}
}
