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

// broken: no connection, or no reply in time; the connection is closed. final: it makes no sense to try again.
type broken struct {
	cause error
	final bool
}

func (b *broken) Error() string { return b.cause.Error() }
func (b *broken) Unwrap() error { return b.cause }

func brokenf(format string, args ...any) *broken { return &broken{cause: fmt.Errorf(format, args...)} }

// said: an error that the server replied.
type said struct {
	code, text string
}

func (s *said) Error() string { return s.text }

func (s *said) isUnknownCommand() bool { return unknownCommand.MatchString(s.text) }

// abandoned: the context of the caller is done. The call may still be on its way until settled is closed.
type abandoned struct {
	settled <-chan struct{}
}

func (a *abandoned) Error() string { return "the caller has given up" }

var (
	// The second word comes from within a script.
	unknownCommand = regexp.MustCompile(`(?i)^ERR unknown (redis )?command`)

	codeWord = regexp.MustCompile(`^[A-Z]+ `)
	noAccess = regexp.MustCompile(`^(NOAUTH|WRONGPASS|ERR AUTH|ERR invalid password|ERR Client sent AUTH)`)
)

// read gives what an error of a driver means: said, broken, or abandoned.
func read(err error) error {
	switch err.(type) {
	case *said, *broken, *abandoned:
		return err
	}
	var reply driver.ReplyError
	if !errors.As(err, &reply) {
		return &broken{cause: err}
	}
	text := string(reply)
	if noAccess.MatchString(text) {
		return &broken{cause: err, final: true}
	}
	code := strings.TrimSuffix(codeWord.FindString(text), " ")
	if code == "" {
		code = "ERR"
	}
	return &said{code: code, text: text}
}

// mayPass reports whether to try again while wait time remains: the server, or its part in the group, is changing, or it
// cannot grant just now.
func mayPass(err error) bool {
	switch err := err.(type) {
	case *broken:
		return !err.final
	case *said:
		return err.passes()
	}
	return false
}

func (s *said) passes() bool {
	switch s.code {
	case "UNBLOCKED", "MOVED", "ASK", "READONLY", "LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN",
		"BUSY", "MISCONF", "OOM", "NOREPLICAS":
		return true
	case "GRACE":
		return !strings.HasPrefix(s.text, "GRACE lease") // longer than any grace covers
	case "BUSYLOCKS":
		return !strings.HasPrefix(s.text, "BUSYLOCKS 64 waits") // of this ID
	}
	return false
}

// typed gives the error as users get it.
func typed(err error, key string) error {
	var ours *Error
	if errors.As(err, &ours) {
		return err
	}
	made := &Error{Key: key, Kind: ErrArgument, Reason: err.Error(), Cause: err}
	switch err := err.(type) {
	case *broken:
		made.Kind, made.Cause = ErrNoServer, err.cause
		if err.final {
			made.Kind = ErrDenied
		} else if errors.Is(err.cause, context.DeadlineExceeded) {
			made.Reason = "no reply in time: " + made.Reason
			// The deadline of one call is no deadline of the caller's.
			made.Cause = errors.New(err.cause.Error())
		}
	case *said:
		made.Cause = driver.ReplyError(err.text)
		switch {
		case err.code == "DEADLOCK":
			made.Kind = ErrDeadlock
		case err.code == "NOPERM":
			made.Kind = ErrDenied
		case err.isUnknownCommand():
			made.Kind = ErrUnavailable
		case err.passes(), err.code == "GRACE", err.code == "BUSYLOCKS", err.code == "CLOCK":
			made.Kind = ErrUnavailable
		}
	}
	return made
}

func refusedError(key string) *Error { return failed(ErrRefused, key, "somebody else has it") }

func timedOutError(key string, waited time.Duration) *Error {
	return failed(ErrTimeout, key, fmt.Sprintf("somebody else still had it after %v", waited.Round(time.Millisecond)))
}

// text gives a word of a reply, which libraries give as string or bytes.
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
