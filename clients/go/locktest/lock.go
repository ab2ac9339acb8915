package locktest

import (
	"cmp"
	"slices"
	"time"
)

// request is what an attempt asks for.
type request struct {
	keys         []string
	lease, wait  time.Duration
	id, owner    string
	channel      string // for NOTIFY
	most         int    // at most this many holders; 0: alone
	isSession    bool
	wantsDetails bool
	wantsResult  bool
	isRecovery   bool
}

// grant is one holder of one lock.
type grant struct {
	token     int64
	id, owner string
	isAlone   bool
	until     time.Duration // a margin after the end of its lease
	session   *conn
	before    *grant // its predecessor, which had never released the lock
	isPending bool   // an attempt with NOTIFY has not claimed it yet
}

// lease returns what is left of the lease.
func (g *grant) lease(now time.Duration) time.Duration {
	if g.isPending {
		return 0
	}
	return max(0, g.until-margin-now)
}

// lock is a key: its holders, expired ones too, and its queue.
type lock struct {
	key     string
	holders []*grant
	queue   []*waiter // in order of arrival
	timer   *timer    // serves the queue when a lease expires
}

// lock returns a key's lock, without holders and places whose time has passed.
func (s *Server) lock(key string) *lock {
	l := s.locks[key]
	if l == nil {
		l = &lock{key: key}
		l.timer = &timer{clock: s.Clock, place: -1, fire: func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.serve(l)
		}}
		s.locks[key] = l
	}
	now := s.now()
	l.holders = slices.DeleteFunc(l.holders, func(one *grant) bool { return now >= one.until+retention })
	l.queue = slices.DeleteFunc(l.queue, func(w *waiter) bool {
		isOver := !w.isWaiting && now >= w.left+placeTime
		if isOver {
			delete(s.attempts, w.id)
		}
		return isOver
	})
	return l
}

// live returns the holders whose lease and margin have not passed.
func (l *lock) live(now time.Duration) []*grant {
	var live []*grant
	for _, one := range l.holders {
		if now < one.until {
			live = append(live, one)
		}
	}
	return live
}

func (l *lock) withToken(token int64) *grant {
	at := slices.IndexFunc(l.holders, func(one *grant) bool { return one.token == token })
	if at < 0 {
		return nil
	}
	return l.holders[at]
}

// heldBy returns the live grant of an attempt.
func (l *lock) heldBy(id string, now time.Duration) *grant {
	for _, one := range l.live(now) {
		if one.id == id && id != "" {
			return one
		}
	}
	return nil
}

// admits is the rule: fewer holders are live than the caller allows, and none of them holds the lock alone.
func (l *lock) admits(r *request, now time.Duration) bool {
	live := l.live(now)
	if r.most == 0 {
		return len(live) == 0
	}
	return len(live) < r.most && !slices.ContainsFunc(live, func(one *grant) bool { return one.isAlone })
}

// expired returns the holder whose lease ended last, if none is live.
func (l *lock) expired(now time.Duration) *grant {
	if len(l.holders) == 0 || len(l.live(now)) > 0 {
		return nil
	}
	return l.latest()
}

func byEnd(a, b *grant) int { return cmp.Compare(a.until, b.until) }

func (l *lock) latest() *grant {
	return slices.MaxFunc(l.holders, byEnd)
}

// grant adds a holder. A caller that holds the lock alone replaces all expired holders; any other caller replaces the
// holder that held it alone, or the first to expire if there is no room.
func (l *lock) grant(r *request, token int64, now time.Duration) *grant {
	made := &grant{
		token: token, id: r.id, owner: r.owner, isAlone: r.most == 0, until: after(now, r.lease+margin),
	}
	switch {
	case made.isAlone:
		made.before = l.expired(now)
		l.holders = nil
	case len(l.holders) > 0 && (len(l.holders) >= r.most || l.holders[0].isAlone):
		made.before = slices.MinFunc(l.holders, byEnd)
		l.remove(made.before)
	}
	if made.before != nil {
		made.before.before = nil
	}
	l.holders = append(l.holders, made)
	return made
}

func (l *lock) remove(one *grant) {
	l.holders = slices.DeleteFunc(l.holders, func(other *grant) bool { return other == one })
}

func (l *lock) info(now time.Duration) Info {
	info := Info{State: "free"}
	for _, w := range l.queue {
		if w.isWaiting {
			info.Waiters++
		}
	}
	if len(l.holders) > 0 {
		one := l.latest()
		info.State, info.Token, info.Owner = "held", one.token, one.owner
		if now >= one.until {
			info.State = "expired"
		}
	}
	return info
}
