package locktest

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"example.com/serverlock/driver"
)

// command carries out one command. c is the connection on which it may block; nil for one of the pool.
func (s *Server) command(c *conn, sent []any) (any, error) {
	words := make([]string, len(sent))
	for at, word := range sent {
		words[at] = text(word)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name, rest := strings.ToUpper(words[0]), words[1:]
	switch name {
	case "PING":
		return "PONG", nil
	case "TIME":
		now := s.Clock.Now()
		return []any{strconv.FormatInt(now.Unix(), 10), strconv.Itoa(now.Nanosecond() / 1000)}, nil
	case "SUBSCRIBE":
		return s.subscribe(c, rest[0]), nil
	}
	keys, rest := keysOf(name, rest)
	switch name {
	case "LOCK.ACQUIRE", "LOCK.MACQUIRE", "LOCK.RECOVER":
		r, err := requestOf(keys, rest)
		if err != nil {
			return nil, err
		}
		r.isRecovery = name == "LOCK.RECOVER"
		r.wantsDetails = r.wantsDetails || r.isRecovery
		return s.acquire(c, r)
	case "LOCK.EXTEND", "LOCK.MEXTEND":
		return s.extend(keys, number(rest[0]), time.Duration(number(rest[2]))*time.Millisecond)
	case "LOCK.RELEASE":
		return s.releaseWith(keys[0], number(rest[0]), rest[1:])
	case "LOCK.MRELEASE":
		count := int64(0)
		for _, key := range keys {
			if s.release(key, number(rest[0])) != 0 {
				count++
			}
		}
		return count, nil
	case "LOCK.CHECK":
		if one := s.lock(keys[0]).withToken(number(rest[0])); one != nil {
			return one.lease(s.now()).Milliseconds(), nil
		}
		return int64(0), nil
	case "LOCK.CANCEL":
		return s.cancel(keys[0], rest[0]), nil
	case "LOCK.INFO":
		return s.fields(keys[0]), nil
	}
	return nil, driver.ReplyError(fmt.Sprintf("ERR unknown command '%s': locktest does not have it", words[0]))
}

// keysOf splits the words after a command's name into its keys and the rest.
func keysOf(name string, words []string) (keys, rest []string) {
	if !strings.HasPrefix(name, "LOCK.") || len(words) == 0 {
		return nil, words
	}
	if !strings.HasPrefix(name, "LOCK.M") {
		return words[:1], words[1:]
	}
	count := number(words[0])
	return words[1 : 1+count], words[1+count:]
}

// requestOf reads the options of an attempt.
func requestOf(keys, words []string) (*request, error) {
	r := &request{keys: keys}
	for at := 0; at < len(words); at++ {
		value := ""
		if at+1 < len(words) {
			value = words[at+1]
		}
		switch words[at] {
		case "PX":
			r.lease = time.Duration(number(value)) * time.Millisecond
		case "WAIT":
			r.wait = time.Duration(number(value)) * time.Millisecond
		case "ID":
			r.id = value
		case "OWNER":
			r.owner = value
		case "NOTIFY":
			r.channel = value
		case "LIMIT":
			r.most = int(number(value))
		case "SHARED":
			r.most = 4096
			continue
		case "SESSION":
			r.isSession = true
			continue
		case "DETAILS":
			r.wantsDetails = true
			continue
		case "RESULT":
			r.wantsResult = true
			continue
		default:
			return nil, driver.ReplyError("ERR syntax error: locktest does not have " + words[at])
		}
		at++
	}
	switch {
	case !r.wantsResult:
	case r.wait == 0:
		return nil, driver.ReplyError("ERR syntax error: RESULT needs WAIT")
	case r.most > 0 || r.isSession:
		return nil, driver.ReplyError("ERR syntax error: RESULT excludes SHARED, LIMIT and SESSION")
	}
	return r, nil
}

// extend extends the lease of all of the locks, or of none.
func (s *Server) extend(keys []string, token int64, lease time.Duration) (any, error) {
	if refusal := s.refusal(keys); refusal != nil {
		return nil, refusal
	}
	var own []*grant
	for _, key := range keys {
		one := s.lock(key).withToken(token)
		if one == nil || one.isPending || s.now() >= one.until {
			return int64(0), nil
		}
		own = append(own, one)
	}
	for _, one := range own {
		one.until = after(s.now(), lease+margin)
	}
	for _, key := range keys {
		s.serve(s.lock(key))
	}
	return int64(1), nil
}

func (s *Server) release(key string, token int64) int64 {
	l := s.lock(key)
	one := l.withToken(token)
	if one == nil {
		return 0
	}
	isLate := s.now() >= one.until
	l.remove(one)
	s.serve(l)
	if isLate {
		return -1
	}
	return 1
}

// cancel ends an attempt, whether it waits or holds the lock.
func (s *Server) cancel(key, id string) int64 {
	s.cancelled[id] = s.now()
	ended := int64(0)
	if w := s.attempts[id]; w != nil {
		ended = 1
		l := w.at
		if w.isWaiting {
			s.answer(w, "cancelled", nil)
			w.isWaiting = false
		}
		s.forget(w)
		s.serve(l)
	}
	l := s.lock(key)
	if one := l.heldBy(id, s.now()); one != nil {
		ended = 1
		l.remove(one)
		s.serve(l)
	}
	return ended
}

// fields is the reply to LOCK.INFO, with the fields that are read.
func (s *Server) fields(key string) any {
	l, now := s.lock(key), s.now()
	info := l.info(now)
	fields := []any{"state", info.State, "waiters", int64(info.Waiters)}
	if info.Token != 0 {
		one := l.latest()
		fields = append(fields, "token", one.token, "lease-ms", one.lease(now).Milliseconds(),
			"free-in-ms", max(0, one.until-now).Milliseconds())
	}
	if info.Owner != "" {
		fields = append(fields, "owner", info.Owner)
	}
	return fields
}

func number(word string) int64 {
	value, _ := strconv.ParseInt(word, 10, 64) // the engine sends whole numbers
	return value
}

func text(word any) string {
	if bytes, ok := word.([]byte); ok {
		return string(bytes)
	}
	return fmt.Sprint(word)
}
