package serverlock

import (
	"context"
	"math"
	"time"
)

var start = time.Now()

// now is a reading of a clock that is never set.
func now() time.Duration { return time.Since(start) }

// after is base + span, or the end of time.
func after(base, span time.Duration) time.Duration {
	if span > math.MaxInt64-base {
		return math.MaxInt64
	}
	return base + span
}

// pause waits; it reports whether the time is over, and not ctx or the manager.
func pause(ctx context.Context, closed <-chan struct{}, span time.Duration) bool {
	timer := time.NewTimer(span)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-closed:
	}
	return false
}
