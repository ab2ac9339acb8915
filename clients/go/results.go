package serverlock

import (
	"context"
	"strconv"
	"strings"
)

// Without the module, a holder stores its result at a key beside the lock's queue before it releases the lock. Those
// that wait get the lock in turn, and find out whether a result was stored in the meantime.

// longestStored is the length in bytes up to which a result is stored.
const longestStored = 65536

// resolved: the attempt ended without the lock, because its holder released it with a result.
type resolved struct {
	value []byte
}

func (*resolved) Error() string { return "the holder released the lock with a result" }

// stored is a stored result and the token of the grant in which it was computed. Without one, the token is 0.
type stored struct {
	token int64
	value []byte
}

// look notes which result is stored before the attempt waits.
func (a *attempt) look() {
	if a.isPortable && a.request.wantsResult && !a.hasLooked {
		a.hasLooked = true
		a.first = a.engine.stored(a.ctx, a.request)
	}
}

// lookAgain returns resolved if a result was stored while the attempt waited.
func (a *attempt) lookAgain() error {
	if a.first == nil {
		return nil
	}
	if now := a.engine.stored(a.ctx, a.request); now != nil && now.token > a.first.token {
		return &resolved{value: now.value}
	}
	return nil
}

// stored returns the result that is stored now. It returns nil if the key has no place for one, or GET fails.
func (e *engine) stored(ctx context.Context, r *request) *stored {
	name := resultOf(r.key())
	if name == "" {
		return nil
	}
	reply, err := e.router.call(ctx, r.key(), []any{"GET", name}, e.timeout)
	if err != nil {
		return nil
	}
	if reply == nil {
		return &stored{}
	}
	digits, value, isWhole := strings.Cut(text(reply), " ")
	token, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || !isWhole {
		return &stored{} // it is not a holder's
	}
	return &stored{token: int64(token), value: []byte(value)}
}

// store stores a holder's result. If that fails, the next one in the queue computes.
func (e *engine) store(ctx context.Context, h *hold, result []byte) {
	name := resultOf(h.request.key())
	if name == "" || len(result) > longestStored {
		return
	}
	value := append(strconv.AppendInt(make([]byte, 0, len(result)+20), h.token, 10), ' ')
	words := []any{"SET", name, append(value, result...), "PX", milliseconds(h.request.lease)}
	_, _ = e.router.call(ctx, h.request.key(), words, e.timeout)
}
