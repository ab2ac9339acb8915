package redislock

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gomodule/redigo/redis"
)

var (
	// ErrRefused: somebody else has the lock, after the wait if any; or LOCK.CANCEL ended the wait.
	ErrRefused = errors.New("the lock is refused")
	// ErrLost: the lock is not held any more, or not for certain.
	ErrLost = errors.New("the lock is lost")
	// ErrUnsupported: the server does not know LOCK.*, and the fallback is off.
	ErrUnsupported = errors.New("the server does not know LOCK.*")
	// ErrReply: the server answered what no LOCK.* command answers.
	ErrReply = errors.New("not a reply to LOCK.*")
)

func (l *line) lost(why string, cause error) error {
	if cause != nil {
		why = fmt.Sprintf("%s: %v", why, cause)
	}
	return fmt.Errorf("%w: %q: %s", ErrLost, l.key, why)
}

// isBroken tells whether to connect anew, perhaps to a new master.
func isBroken(err error) bool {
	var answer redis.Error
	return !errors.As(err, &answer) || hasCode(answer, "READONLY", "LOADING")
}

// mayPass tells whether the same command may succeed later: the server, or its part as master, is changing.
func mayPass(err error) bool {
	var answer redis.Error
	if errors.As(err, &answer) {
		return hasCode(answer, "READONLY", "LOADING", "UNBLOCKED", "NOREPLICAS")
	}
	return !errors.Is(err, ErrReply) && !errors.Is(err, ErrUnsupported)
}

func hasCode(answer redis.Error, codes ...string) bool {
	for _, code := range codes {
		if strings.HasPrefix(string(answer), code) {
			return true
		}
	}
	return false
}
