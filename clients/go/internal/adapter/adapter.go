// Package adapter gives the packages that have the interface of another library what users of serverlock have no use
// for. serverlock fills it in.
package adapter

import "time"

var (
	// Timed gives a serverlock.Option: nothing renews the lease, and all of it counts.
	Timed func() any
	// Adopt gives the *serverlock.Held of a grant whose token came from elsewhere. locks is a *serverlock.Locks.
	Adopt func(locks any, key string, token int64, lease time.Duration) (any, error)
)

// Census gives what Locks keep for callers, by name: for tests that look for leaks.
var Census func(locks any) map[string]int
