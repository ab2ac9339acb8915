// Package clock is the interface to the clock on which leases and waits are counted. Package serverlock has the real
// one; package locktest has one that the test moves.
package clock

import "time"

// Clock tells the time and wakes its callers.
type Clock interface {
	// Now returns the time since some moment, including time while the machine was suspended.
	Now() time.Duration
	// NewTimer returns a timer whose channel receives once, after the span.
	NewTimer(span time.Duration) Timer
	// AfterFunc runs call in a goroutine of its own, after the span or earlier: call has to look at the clock. The
	// timer's channel is nil.
	AfterFunc(span time.Duration, call func()) Timer
}

// Timer does what [time.Timer] does.
type Timer interface {
	C() <-chan time.Time
	Reset(span time.Duration) bool
	Stop() bool
}
