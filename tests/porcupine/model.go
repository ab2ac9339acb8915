package main

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// state is the lock after some operations. Its moments are bounds: the server's own clock is not in the history, so an
// operation took effect somewhere between its call and its return, and not before the operations ahead of it.
type state struct {
	// now is the earliest moment at which the next operation can take effect.
	now int64
	// last is the largest token that a client has seen.
	last int64
	// replies is the number of operations so far that got one.
	replies int
	// grant is the current one; the zero value means that the key holds none.
	grant grant
}

// grant is an assignment of the lock, expired or not.
type grant struct {
	made bool
	// attempt is the attempt that got it, or "" if it was sent without an ID.
	attempt string
	// token is 0 if no client has seen it, because the reply was lost.
	token int64
	// lease counts from a moment between from and to.
	lease, from, to int64
}

// slack allows for clocks that are read one after the other, in microseconds. It widens what the model accepts.
const slack = 2_000

// model returns the specification of one lock with one holder, which ends by RELEASE, CANCEL, or by its timestamp:
// the moment of the grant or of its last extension + lease + margin.
func model(margin int64) porcupine.Model {
	specification := porcupine.NondeterministicModel{
		Init: func() []interface{} { return []interface{}{state{}} },
		Step: func(before, input, output interface{}) []interface{} {
			var after []interface{}
			for _, next := range step(before.(state), input.(operation), output.(outcome), margin) {
				after = append(after, next)
			}
			return after
		},
		DescribeOperation: func(input, output interface{}) string { return describe(input.(operation), output.(outcome)) },
		DescribeState:     func(current interface{}) string { return current.(state).String() },
	}
	return specification.ToModel()
}

// step returns the states in which the lock can be after op, if it had that outcome; none if it cannot have had it.
func step(s state, op operation, out outcome, margin int64) []state {
	s.now = max(s.now, op.Call)
	// Whatever came before this operation came before its return.
	s.grant.to = min(s.grant.to, op.end)
	mine := s.grant.made && s.grant.token == op.Token
	if op.Name == "CANCEL" {
		mine = s.grant.made && s.grant.attempt == op.Attempt
	}
	if out.isLost {
		after := s.unanswered(op, mine, margin)
		// It may also never take effect. Without a chance of an effect it comes last, which shortens the search.
		if len(after) > 0 || s.replies == op.replies {
			after = append(after, s)
		}
		return after
	}
	s.replies++
	switch op.Name {
	case "ACQUIRE", "RECOVER":
		switch {
		case out.isNil && (op.Name == "RECOVER" || op.others):
			return []state{s}
		case out.isNil:
			return s.held(margin)
		}
		return s.granted(op, out.number, margin)
	case "EXTEND":
		switch {
		case out.number == 0 && !mine:
			return []state{s}
		case out.number == 0:
			return s.expired(op, margin)
		case out.number == 1 && mine:
			return each(s.held(margin), renewed(op))
		}
	case "RELEASE":
		switch {
		case out.number == 0 && !mine:
			return []state{s}
		case out.number == 1 && mine:
			return each(s.held(margin), state.free)
		// An expired lock is deleted, unless the server has already forgotten it.
		case (out.number == -1 || out.number == 0) && mine:
			return each(s.expired(op, margin), state.free)
		}
	case "CHECK":
		return s.checked(op, out, mine)
	case "CANCEL":
		switch {
		case !mine:
			// The attempt may have waited, or had a reserved place, whatever the reply.
			return []state{s}
		case out.number == 0:
			return s.expired(op, margin)
		case out.number == 1:
			return append(each(s.held(margin), state.free), s.expired(op, margin)...)
		}
	}
	return nil
}

// unanswered returns the states after an operation without a reply that took effect.
func (s state) unanswered(op operation, mine bool, margin int64) []state {
	switch {
	case op.Name == "ACQUIRE" || op.Name == "RECOVER":
		return s.granted(op, 0, margin)
	case op.Name == "EXTEND" && mine:
		return each(s.held(margin), renewed(op))
	case (op.Name == "RELEASE" || op.Name == "CANCEL") && mine:
		return []state{s.free()}
	}
	return nil
}

// granted returns the states after a grant with this token; 0 stands for a token that nobody has seen.
func (s state) granted(op operation, token, margin int64) []state {
	var after []state
	fits := token == 0 || token > s.last
	if s.grant.made && op.Attempt != "" && s.grant.attempt == op.Attempt {
		// The same ID gets its token again, and its lease is never shortened.
		if token == 0 || token == s.grant.token || (s.grant.token == 0 && fits) {
			for _, kept := range s.held(margin) {
				kept.grant.token = max(kept.grant.token, token)
				kept.last = max(kept.last, token)
				after = append(after, kept, renewed(op)(kept))
			}
		}
	}
	vacant := s.expired(op, margin)
	if !s.grant.made && op.Name != "RECOVER" {
		vacant = []state{s}
	}
	for _, next := range vacant {
		if fits {
			next.last = max(next.last, token)
			next.grant = grant{made: true, attempt: op.Attempt, token: token}
			after = append(after, renewed(op)(next))
		}
	}
	return after
}

// checked returns the state after CHECK, whose reply is in whole milliseconds, without the margin.
func (s state) checked(op operation, out outcome, mine bool) []state {
	switch {
	case !mine && out.number == 0:
		return []state{s}
	case !mine || out.number < 0:
		return nil
	case out.number == 0:
		return s.ended(op, s.grant.lease-1_000)
	}
	s.grant.from = max(s.grant.from, s.now+out.number*1_000-s.grant.lease-slack)
	s.grant.to = min(s.grant.to, op.end+(out.number+1)*1_000-s.grant.lease+slack)
	return possible(s)
}

// held returns the state in which the timestamp has not passed, if that is possible.
func (s state) held(margin int64) []state {
	if !s.grant.made {
		return nil
	}
	s.grant.from = max(s.grant.from, s.now-s.grant.lease-margin-slack)
	return possible(s)
}

// expired returns the state in which the timestamp has passed, if that is possible.
func (s state) expired(op operation, margin int64) []state {
	return s.ended(op, s.grant.lease+margin)
}

// ended returns the state in which this much time has passed since the grant.
func (s state) ended(op operation, time int64) []state {
	if !s.grant.made {
		return nil
	}
	s.now = max(s.now, s.grant.from+time-slack)
	s.grant.to = min(s.grant.to, op.end-time+slack)
	return possible(s)
}

func possible(s state) []state {
	if s.grant.from > s.grant.to {
		return nil
	}
	return []state{s}
}

func (s state) free() state {
	s.grant = grant{}
	return s
}

// renewed returns a change to a state: the lease of op counts from its moment.
func renewed(op operation) func(state) state {
	return func(s state) state {
		s.grant.lease, s.grant.from, s.grant.to = op.Lease, s.now, op.end
		return s
	}
}

func each(states []state, change func(state) state) []state {
	var after []state
	for _, s := range states {
		after = append(after, change(s))
	}
	return after
}

func (s state) String() string {
	if !s.grant.made {
		return "free"
	}
	if s.grant.token == 0 {
		return "held, the token was lost"
	}
	return fmt.Sprintf("granted as %d", s.grant.token)
}
