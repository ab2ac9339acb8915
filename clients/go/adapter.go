package serverlock

import (
	"time"

	"example.com/serverlock/internal/adapter"
	"example.com/serverlock/internal/clock"
)

func init() {
	timed := func(s *settings) { s.timed = true }
	adapter.Timed = func() any { return Option(timed) }
	adapter.Census = func(locks any) map[string]int { return locks.(*Locks).engine.census() }
	adapter.OnClock = func(c clock.Clock) any { return ManagerOption(func(s *managerSettings) { s.clock = c }) }
	adapter.Lose = func(held any) (keys []string, token int64) {
		h := held.(*Held).hold
		_ = h.taken()
		return h.request.keys, h.token
	}
	adapter.Adopt = func(locks any, key string, token int64, lease time.Duration) (any, error) {
		e := locks.(*Locks).engine
		r := newRequest([]string{key}, lease, one, nil, []Option{timed})
		if r.err != nil {
			return nil, r.err
		}
		began := e.now()
		return newHeld(newHold(e, r, &grant{token: token, sent: began, isPortable: e.isPortable()}, began)), nil
	}
}
