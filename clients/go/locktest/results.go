package locktest

import (
	"slices"
	"time"

	"example.com/serverlock/driver"
)

// longestResult is the setting lock.result-max, in bytes, with its default.
const longestResult = 65536

// result is what a holder passed on to an attempt, which may ask for it until then.
type result struct {
	value string
	until time.Duration
}

// releaseWith releases a lock with the options of LOCK.RELEASE.
func (s *Server) releaseWith(key string, token int64, options []string) (any, error) {
	if len(options) == 0 {
		return s.release(key, token), nil
	}
	if options[0] != "RESULT" || len(options) != 2 {
		return nil, driver.ReplyError("ERR syntax error: locktest does not have " + options[0])
	}
	value := options[1]
	if len(value) > longestResult {
		return nil, driver.ReplyError("ERR result is longer than 65536 bytes, the limit lock.result-max")
	}
	l := s.lock(key)
	if one := l.withToken(token); one != nil && s.now() < one.until {
		s.passOn(l, value)
	}
	return s.release(key, token), nil
}

// passOn gives a result to all attempts in the queue that want one. They leave the queue.
func (s *Server) passOn(l *lock, value string) {
	for _, w := range slices.Clone(l.queue) {
		if !w.wantsResult {
			continue
		}
		s.forget(w)
		s.results[w.id] = result{value: value, until: s.now() + claimTime}
		if w.isWaiting {
			s.answer(w, "result", []any{value})
		}
		w.isWaiting, w.blocked = false, nil
	}
}

// resultFor is the reply to an attempt that was given a result.
func (s *Server) resultFor(r *request) (reply any, isGiven bool) {
	given, isGiven := s.results[r.id]
	if !isGiven || !r.wantsResult || s.now() >= given.until {
		delete(s.results, r.id)
		return nil, false
	}
	return []any{given.value}, true
}
