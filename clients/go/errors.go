package serverlock

import (
	"context"
	"errors"
	"strconv"
)

// The kinds of errors, for [errors.Is].
var (
	// ErrRefused: somebody else has the lock, or an operator cancelled the wait. [ErrTimeout] is a special case.
	ErrRefused = errors.New("somebody else has the lock")
	// ErrTimeout: somebody else still had the lock when the wait ended, or the server kept refusing for the whole
	// wait.
	ErrTimeout = errors.New("the wait for the lock has ended")
	// ErrLost: the lock is no longer held, or no longer certain to be held.
	ErrLost = errors.New("the lock is lost")
	// ErrDeadlock: waiting would complete a cycle of clients that wait for each other's session locks.
	ErrDeadlock = errors.New("the wait would be a deadlock")
	// ErrUnavailable: the server refuses to grant this lock now (BUSY, MISCONF, LOADING, READONLY, OOM, NOREPLICAS,
	// GRACE, BUSYLOCKS, CLOCK and others), or it lacks the module.
	ErrUnavailable = errors.New("the server does not grant locks")
	// ErrDenied: this user may not use the command, the key or the connection.
	ErrDenied = errors.New("the server does not allow it")
	// ErrNoServer: there is no connection to a server, or no reply came in time.
	ErrNoServer = errors.New("the server does not answer")
	// ErrArgument: an argument is wrong, or the key holds something that is not a lock.
	ErrArgument = errors.New("an argument is wrong")
	// ErrMisuse: the same lock was requested within its own scope, the Locks are closed, or the lock was already
	// released.
	ErrMisuse = errors.New("the lock is misused")
)

var codes = []struct {
	kind error
	code string
}{
	{ErrRefused, "refused"}, {ErrTimeout, "timeout"}, {ErrLost, "lost"}, {ErrDeadlock, "deadlock"},
	{ErrUnavailable, "unavailable"}, {ErrDenied, "denied"}, {ErrNoServer, "no_server"}, {ErrArgument, "argument"},
	{ErrMisuse, "misuse"}, {context.Canceled, "cancelled"}, {context.DeadlineExceeded, "cancelled"},
}

// Error is the type of all of this package's errors.
type Error struct {
	// Key is the lock's key, quoted; several keys are separated by commas.
	Key string
	// Kind is one of the variables of this package, or the error of the context that ended the attempt.
	Kind error
	// Reason describes what happened.
	Reason string
	// Cause is the error from the server, the connection or the context, if there was one.
	Cause error
}

func (e *Error) Error() string {
	if e.Key == "" {
		return "serverlock: " + e.Reason
	}
	return "the lock " + e.Key + ": " + e.Reason
}

// Code returns the kind as a stable word for logs and metrics: refused, timeout, lost, deadlock, unavailable, denied,
// no_server, argument or misuse; cancelled if the attempt's context was done.
func (e *Error) Code() string {
	for _, known := range codes {
		if e.Kind == known.kind {
			return known.code
		}
	}
	return "unknown"
}

// Is reports whether target is the kind of the error. [ErrTimeout] is also [ErrRefused] and
// [context.DeadlineExceeded].
func (e *Error) Is(target error) bool {
	return target == e.Kind || e.Kind == ErrTimeout && (target == ErrRefused || target == context.DeadlineExceeded)
}

// Timeout reports whether the wait timed out or the context's deadline passed, as the errors of package net do.
func (e *Error) Timeout() bool { return e.Kind == ErrTimeout || e.Kind == context.DeadlineExceeded }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

func failed(kind error, key, reason string) *Error {
	return &Error{Key: key, Kind: kind, Reason: reason}
}

func closedError(key string) *Error { return failed(ErrMisuse, key, "its Locks are closed") }

// givenUp is the error of an attempt whose context is done.
func givenUp(ctx context.Context, key string) *Error {
	cause := context.Cause(ctx)
	return &Error{Key: key, Kind: ctx.Err(), Reason: "the caller has given up: " + cause.Error(), Cause: cause}
}

func shown(keys []string) string {
	text := ""
	for number, key := range keys {
		if number > 0 {
			text += ", "
		}
		if len(text) > 200 {
			return text + "..."
		}
		text += strconv.Quote(key[:min(len(key), 200)])
	}
	return text
}
