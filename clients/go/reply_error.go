package serverlock

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"example.com/serverlock/driver"
)

// connectionLost: there is no connection, or no reply came in time; the connection is closed. final means that a retry
// is pointless.
type connectionLost struct {
	cause error
	final bool
}

func (c *connectionLost) Error() string { return c.cause.Error() }
func (c *connectionLost) Unwrap() error { return c.cause }

func connectionLostf(format string, args ...any) *connectionLost {
	return &connectionLost{cause: fmt.Errorf(format, args...)}
}

// replyError is an error reply from the server.
type replyError struct {
	code, text string
}

func (r *replyError) Error() string { return r.text }

func (r *replyError) isUnknownCommand() bool { return unknownCommand.MatchString(r.text) }

// codeOf returns the error code of an error reply, or "".
func codeOf(err error) string {
	if reply, ok := as[*replyError](err); ok {
		return reply.code
	}
	return ""
}

// abandoned: the caller's context is done. The call may be in flight until settled is closed. If call is nil, the
// connection was closed.
type abandoned struct {
	settled <-chan struct{}
	call    *driver.Call
}

// mayRun waits until the call has settled, and reports whether the server may still run it, because its connection was
// closed before the reply arrived.
func (a *abandoned) mayRun() bool {
	<-a.settled
	if a.call == nil {
		return true
	}
	var reply driver.ReplyError
	return a.call.Err != nil && !errors.As(a.call.Err, &reply)
}

func (a *abandoned) Error() string { return "the caller has given up" }

var (
	// The text contains "redis" if a script called the command.
	unknownCommand = regexp.MustCompile(`(?i)^ERR unknown (redis )?command`)

	codeWord = regexp.MustCompile(`^[A-Z]+ `)
	noAccess = regexp.MustCompile(`^(NOAUTH|WRONGPASS|ERR AUTH|ERR invalid password|ERR Client sent AUTH)`)
)

// as is errors.As for a single type.
func as[E error](err error) (target E, ok bool) {
	ok = errors.As(err, &target)
	return target, ok
}

// read turns a driver's error into a *replyError, *connectionLost or *abandoned.
func read(err error) error {
	switch err.(type) {
	case *replyError, *connectionLost, *abandoned:
		return err
	}
	var reply driver.ReplyError
	if !errors.As(err, &reply) {
		return &connectionLost{cause: err}
	}
	text := string(reply)
	if noAccess.MatchString(text) {
		return &connectionLost{cause: err, final: true}
	}
	code := strings.TrimSuffix(codeWord.FindString(text), " ")
	if code == "" {
		code = "ERR"
	}
	return &replyError{code: code, text: text}
}

// isTransient reports whether the error is transient, so that a retry makes sense while wait time remains.
func isTransient(err error) bool {
	switch err := err.(type) {
	case *connectionLost:
		return !err.final
	case *replyError:
		return err.isTransient()
	}
	return false
}

func (r *replyError) isTransient() bool {
	switch r.code {
	case "UNBLOCKED", "MOVED", "ASK", "READONLY", "LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN",
		"BUSY", "MISCONF", "OOM", "NOREPLICAS":
		return true
	case "GRACE":
		return !strings.HasPrefix(r.text, "GRACE lease") // the lease is longer than any grace covers
	case "BUSYLOCKS":
		return !strings.HasPrefix(r.text, "BUSYLOCKS 64 waits") // waits with this ID
	}
	return false
}

// typed returns the error that the user gets.
func typed(err error, key string) error {
	var ours *Error
	if errors.As(err, &ours) {
		return err
	}
	e := &Error{Key: key, Kind: ErrArgument, Reason: err.Error(), Cause: err}
	switch err := err.(type) {
	case *connectionLost:
		e.Kind, e.Cause = ErrNoServer, err.cause
		if err.final {
			e.Kind = ErrDenied
		} else if errors.Is(err.cause, context.DeadlineExceeded) {
			e.Reason = "no reply in time: " + e.Reason
			// One call's time-out is not the caller's deadline.
			e.Cause = errors.New(err.cause.Error())
		}
	case *replyError:
		e.Cause = driver.ReplyError(err.text)
		switch {
		case err.code == "DEADLOCK":
			e.Kind = ErrDeadlock
		case err.code == "NOPERM":
			e.Kind = ErrDenied
		case err.isUnknownCommand():
			e.Kind = ErrUnavailable
		case err.isTransient(), err.code == "GRACE", err.code == "BUSYLOCKS", err.code == "CLOCK":
			e.Kind = ErrUnavailable
		}
	}
	return e
}

func refusedError(key string) *Error { return failed(ErrRefused, key, "somebody else has it") }

func timedOutError(key string, waited time.Duration) *Error {
	return failed(ErrTimeout, key, fmt.Sprintf("somebody else still had it after %v", waited.Round(time.Millisecond)))
}

// text converts a string in a reply, which libraries return as string or []byte.
func text(value any) string {
	switch value := value.(type) {
	case string:
		return value
	case []byte:
		return string(value)
	case nil:
		return ""
	}
	return fmt.Sprint(value)
}

// fieldsOf reads a reply of names and values, which libraries return as a list or a map.
func fieldsOf(reply any) map[string]any {
	fields := map[string]any{}
	switch reply := reply.(type) {
	case []any:
		for at := 0; at+1 < len(reply); at += 2 {
			fields[text(reply[at])] = reply[at+1]
		}
	case map[any]any:
		for name, value := range reply {
			fields[text(name)] = value
		}
	}
	return fields
}
