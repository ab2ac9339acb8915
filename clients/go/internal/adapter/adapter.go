// Package adapter gives packages that imitate other libraries, and package locktest, access to what serverlock's API
// leaves out. Package serverlock sets its variables.
package adapter

import (
	"time"

	"example.com/serverlock/internal/clock"
)

var (
	// Timed returns a serverlock.Option: the lease is not renewed, and the lock counts as held until it ends.
	Timed func() any
	// Adopt returns the *serverlock.Held of a grant whose token came from elsewhere. locks is a *serverlock.Locks.
	Adopt func(locks any, key string, token int64, lease time.Duration) (any, error)
)

// Census counts what a Locks keeps for callers, by name, for tests that look for leaks.
var Census func(locks any) map[string]int

var (
	// OnClock returns a serverlock.ManagerOption: leases and waits are counted on this clock.
	OnClock func(c clock.Clock) any
	// Lose reports the loss of a *serverlock.Held to its holder. It returns the keys and the token.
	Lose func(held any) (keys []string, token int64)
)
