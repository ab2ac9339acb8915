package locktest

import (
	"slices"
	"time"

	"example.com/serverlock/driver"
)

// waiter is an attempt in a queue. One that is not waiting at the moment has a place reserved there.
type waiter struct {
	*request
	arrival   int64
	at        *lock // in whose queue it is
	isWaiting bool
	blocked   *conn // waits for the reply; nil with NOTIFY
	timer     *timer
	left      time.Duration // since when its place has been reserved
}

// acquire grants the locks, or makes the attempt wait.
func (s *Server) acquire(c *conn, r *request) (any, error) {
	if refusal := s.refusal(r.keys); refusal != nil {
		return nil, refusal
	}
	now := s.now()
	if cancelled, ok := s.cancelled[r.id]; ok && now < cancelled+placeTime {
		return nil, nil
	}
	if reply, isGiven := s.resultFor(r); isGiven {
		return reply, nil
	}
	if own := s.heldBy(r); own != nil {
		return s.again(c, r, own), nil
	}
	w := s.attempts[r.id]
	if w == nil {
		s.arrivals++
		w = &waiter{arrival: s.arrivals}
	}
	s.stopWaiting(w)
	w.request = r
	blocker := s.blocker(w)
	if r.isRecovery && (blocker != nil || s.lock(r.keys[0]).expired(now) == nil) {
		return nil, nil
	}
	if blocker == nil {
		s.forget(w)
		return s.grant(c, r).reply(r, now), nil
	}
	if r.id == "" {
		return nil, nil
	}
	s.join(w, blocker)
	if r.wait == 0 || c == nil && r.channel == "" {
		s.leave(w)
		return nil, nil
	}
	w.isWaiting = true
	s.awaitExpiry(blocker)
	w.timer = s.Clock.at(r.wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if w.isWaiting {
			s.answer(w, "timeout", nil)
			s.leave(w)
		}
	})
	if r.channel != "" {
		return "WAITING", nil
	}
	w.blocked = c
	return nil, errBlocks
}

// heldBy returns the grants of an attempt that has all of its keys.
func (s *Server) heldBy(r *request) []*grant {
	var own []*grant
	for _, key := range r.keys {
		one := s.lock(key).heldBy(r.id, s.now())
		if one == nil || len(own) > 0 && one.token != own[0].token {
			return nil
		}
		own = append(own, one)
	}
	return own
}

// again is for an attempt that already has the locks: it claims them, or a reply was lost. Its lease never becomes
// shorter.
func (s *Server) again(c *conn, r *request, own []*grant) any {
	until := after(s.now(), r.lease+margin)
	for _, one := range own {
		if one.isPending || until > one.until {
			one.until = until
		}
		one.isPending, one.session = false, nil
		if r.isSession {
			one.session = c
		}
	}
	for _, key := range r.keys {
		s.serve(s.lock(key))
	}
	return own[0].reply(r, s.now())
}

// blocker returns the lock for which the attempt has to wait: the one in whose queue it is, if that is one of several.
func (s *Server) blocker(w *waiter) *lock {
	now := s.now()
	var found *lock
	for _, key := range w.keys {
		l := s.lock(key)
		isAhead := func(other *waiter) bool { return other.isWaiting && other.arrival < w.arrival }
		if (found == nil || l == w.at) && (slices.ContainsFunc(l.queue, isAhead) || !l.admits(w.request, now)) {
			found = l
		}
	}
	return found
}

// grant grants all of the locks, and returns the first grant.
func (s *Server) grant(c *conn, r *request) *grant {
	now := s.now()
	s.lastToken = max(s.lastToken+1, epoch.Add(now).UnixMicro())
	var first *grant
	for _, key := range r.keys {
		made := s.lock(key).grant(r, s.lastToken, now)
		if r.isSession {
			made.session = c
		}
		if first == nil {
			first = made
		}
	}
	return first
}

// reply is the reply to an attempt: the token, or the details.
func (g *grant) reply(r *request, now time.Duration) any {
	if !r.wantsDetails {
		return g.token
	}
	if g.before == nil {
		return []any{g.token, nil, nil, nil}
	}
	details := []any{g.token, max(0, (now - g.before.until).Milliseconds()), g.before.token, nil}
	if g.before.owner != "" {
		details[3] = g.before.owner
	}
	return details
}

// serve grants the lock to as many waiters as possible, in order.
func (s *Server) serve(l *lock) {
	l.timer.Stop()
	s.lock(l.key) // without the places that are no longer reserved
	for at := 0; at < len(l.queue); {
		w := l.queue[at]
		if !w.isWaiting {
			at++
			continue
		}
		blocker := s.blocker(w)
		if blocker == l {
			s.awaitExpiry(l)
			return
		}
		if blocker != nil {
			s.join(w, blocker)
		} else {
			s.handOver(w)
		}
	}
}

// awaitExpiry serves the queue when the next lease has expired.
func (s *Server) awaitExpiry(l *lock) {
	live := l.live(s.now())
	if len(live) > 0 {
		next := slices.MinFunc(live, byEnd)
		l.timer.Reset(next.until - s.now())
	}
}

func (s *Server) handOver(w *waiter) {
	s.forget(w)
	made := s.grant(w.blocked, w.request)
	if w.channel == "" {
		s.answer(w, "", made.reply(w.request, s.now()))
		w.isWaiting = false
		return
	}
	for _, key := range w.keys {
		one := s.lock(key).withToken(made.token)
		one.isPending, one.until = true, s.now()+claimTime
	}
	s.notify(w, "granted")
	w.isWaiting = false
	s.Clock.at(claimTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unclaimed(w, made.token)
	})
}

// unclaimed passes a lock on as if it had never been granted.
func (s *Server) unclaimed(w *waiter, token int64) {
	for _, key := range w.keys {
		l := s.lock(key)
		if one := l.withToken(token); one != nil && one.isPending {
			l.remove(one)
			if one.before != nil {
				l.holders = append(l.holders, one.before)
			}
			s.serve(l)
		}
	}
}

// join adds an attempt to a queue, in order of arrival.
func (s *Server) join(w *waiter, l *lock) {
	if w.at != nil {
		w.at.queue = slices.DeleteFunc(w.at.queue, func(other *waiter) bool { return other == w })
	}
	at := slices.IndexFunc(l.queue, func(other *waiter) bool { return other.arrival > w.arrival })
	if at < 0 {
		at = len(l.queue)
	}
	l.queue = slices.Insert(l.queue, at, w)
	w.at = l
	s.attempts[w.id] = w
}

// stopWaiting is called for a newer command from the same attempt.
func (s *Server) stopWaiting(w *waiter) {
	if w.isWaiting && w.blocked != nil {
		w.blocked.deliver(nil, driver.ReplyError("UNBLOCKED a newer call with the same id replaced this one"))
	}
	w.isWaiting, w.blocked = false, nil
	if w.timer != nil {
		w.timer.Stop()
	}
}

// leave reserves the place of an attempt that no longer waits. Those behind it may get the lock.
func (s *Server) leave(w *waiter) {
	w.isWaiting, w.blocked, w.left = false, nil, s.now()
	if w.timer != nil {
		w.timer.Stop()
	}
	s.serve(w.at)
}

// forget removes an attempt from its queue.
func (s *Server) forget(w *waiter) {
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.at == nil {
		return
	}
	w.at.queue = slices.DeleteFunc(w.at.queue, func(other *waiter) bool { return other == w })
	w.at = nil
	delete(s.attempts, w.id)
}

// answer ends a wait: with a reply, or with a message.
func (s *Server) answer(w *waiter, message string, reply any) {
	if w.blocked != nil {
		w.blocked.deliver(reply, nil)
	} else if w.channel != "" {
		s.notify(w, message)
	}
}

// turnAway ends the wait of an attempt for a refused key.
func (s *Server) turnAway(w *waiter) {
	if w.blocked != nil {
		w.blocked.deliver(nil, s.refusal(w.keys))
	} else {
		s.notify(w, "unblocked")
	}
	s.leave(w)
}

func (s *Server) refusal(keys []string) error {
	for _, key := range keys {
		if reply, ok := s.refusals[key]; ok {
			return reply
		}
	}
	return nil
}
