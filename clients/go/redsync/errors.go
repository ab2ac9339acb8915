package redsync

import (
	"errors"
	"fmt"

	"example.com/serverlock"
)

// ErrFailed means that the context ended the attempt.
var ErrFailed = errors.New("redsync: failed to acquire lock")

// ErrExtendFailed means that the lock was extended, but the reply took longer than its expiry.
var ErrExtendFailed = errors.New("redsync: failed to extend lock")

// ErrLockAlreadyExpired means that the lock to unlock is no longer held.
var ErrLockAlreadyExpired = errors.New("redsync: failed to unlock, lock was already expired")

// ErrTaken means that somebody else has the lock. Nodes has one entry, for the one server.
type ErrTaken struct {
	Nodes []int
}

func (err ErrTaken) Error() string {
	return fmt.Sprintf("lock already taken, locked nodes: %v", err.Nodes)
}

// A RedisError is any other error; Err is package serverlock's error. Node is 0.
type RedisError struct {
	Node int
	Err  error
}

func (e RedisError) Error() string { return fmt.Sprintf("node #%d: %s", e.Node, e.Err) }

// Unwrap returns package serverlock's error.
func (e RedisError) Unwrap() error { return e.Err }

func taken() error { return &ErrTaken{Nodes: []int{0}} }

// translated converts an attempt's error to redsync's.
func translated(err error) error {
	var ours *serverlock.Error
	if !errors.As(err, &ours) {
		return &RedisError{Err: err}
	}
	switch {
	case errors.Is(ours.Kind, serverlock.ErrRefused), errors.Is(ours.Kind, serverlock.ErrTimeout):
		if ours.Cause != nil { // the server kept refusing
			return &RedisError{Err: err}
		}
		return taken()
	case isOfContext(ours.Kind):
		return ErrFailed
	}
	return &RedisError{Err: err}
}
