package serverlock

import (
	"fmt"
	"math"
	"time"
)

const (
	tenYears      = 3650 * 24 * time.Hour
	longestNotify = time.Hour
	maxHolders    = 4096
	maxKeys       = 1024
	maxKeyLength  = 4096
)

type form int

const (
	one form = iota
	many
	recovery
)

// request is what a lock asks for, checked before anything is sent, and the words of its commands.
type request struct {
	settings
	keys  []string
	name  string
	lease time.Duration
	form  form
	kind  []any // SHARED, or LIMIT n
	err   error // a bad argument
	head  []any
	tail  []any
}

func newRequest(keys []string, lease time.Duration, form form, kind []any, options []Option) *request {
	r := &request{keys: keys, name: shown(keys), lease: lease, form: form, kind: kind}
	r.within = time.Second
	for _, option := range options {
		option(&r.settings)
	}
	if form == recovery {
		r.wait = 0
	}
	if reason := r.fault(); reason != "" {
		r.err = failed(ErrArgument, r.name, reason)
		return r
	}
	command := [...]string{"LOCK.ACQUIRE", "LOCK.MACQUIRE", "LOCK.RECOVER"}[form]
	r.head = append(append([]any{command}, r.named()...), "PX", milliseconds(lease))
	r.tail = append(r.tail, kind...)
	if r.owned {
		r.tail = append(r.tail, "OWNER", r.owner)
	}
	if r.session {
		r.tail = append(r.tail, "SESSION")
	}
	if r.details && form == one {
		r.tail = append(r.tail, "DETAILS")
	}
	return r
}

// fault names the first wrong argument and what is allowed.
func (r *request) fault() string {
	if len(r.keys) == 0 {
		return "keys is empty: AllOf needs at least one"
	}
	if len(r.keys) > maxKeys {
		return fmt.Sprintf("keys are %d, more than %d", len(r.keys), maxKeys)
	}
	seen := make(map[string]bool, len(r.keys))
	for _, key := range r.keys {
		if len(key) > maxKeyLength {
			return fmt.Sprintf("a key is longer than %d bytes", maxKeyLength)
		}
		if seen[key] {
			return "keys has the same key twice"
		}
		seen[key] = true
	}
	if len(r.kind) == 2 {
		if n := r.kind[1].(int64); n < 1 || n > maxHolders {
			return fmt.Sprintf("n is %d, not between 1 and %d", n, maxHolders)
		}
	}
	for _, span := range []struct {
		name               string
		value, least, most time.Duration
	}{
		{"lease", r.lease, time.Millisecond, tenYears},
		{"wait", r.wait, 0, Forever},
		{"atLeast", r.atLeast, 0, tenYears},
		{"maxHold", r.maxHold, 0, Forever},
		{"within", r.within, time.Millisecond, longestNotify},
	} {
		if span.value < span.least || span.value > span.most {
			return fmt.Sprintf("%s is %v, not between %v and %v", span.name, span.value, span.least, span.most)
		}
	}
	if r.replicas < 0 || r.replicas > 1000 {
		return fmt.Sprintf("replicas is %d, not between 0 and 1000", r.replicas)
	}
	if r.owned && !isOwner(r.owner) {
		return fmt.Sprintf("owner is %.140q, not 1 to 128 visible ASCII characters without a space", r.owner)
	}
	return ""
}

func isOwner(owner string) bool {
	for i := range len(owner) {
		if owner[i] < '!' || owner[i] > '~' {
			return false
		}
	}
	return len(owner) >= 1 && len(owner) <= 128
}

// key decides which server is asked.
func (r *request) key() string { return r.keys[0] }

func (r *request) isExclusive() bool { return len(r.kind) == 0 }

// needsConnection reports whether the grant is tied to a connection.
func (r *request) needsConnection() bool { return r.session || r.replicas > 0 || r.fsync }

// needsModule names an option that the script does not support.
func (r *request) needsModule() string {
	switch {
	case r.session:
		return "Session"
	case len(r.kind) == 1:
		return "Shared"
	case len(r.kind) == 2:
		return "Limit"
	case r.form == many:
		return "AllOf"
	}
	return ""
}

func (r *request) named() []any {
	words := make([]any, 0, len(r.keys)+1)
	if r.form == many {
		words = append(words, int64(len(r.keys)))
	}
	for _, key := range r.keys {
		words = append(words, key)
	}
	return words
}

func (r *request) acquire(id string, wait time.Duration, channel string) []any {
	words := make([]any, 0, len(r.head)+len(r.tail)+6)
	words = append(words, r.head...)
	if wait > 0 {
		longest := tenYears
		if channel != "" {
			longest = longestNotify
		}
		words = append(words, "WAIT", milliseconds(min(wait, longest)))
	}
	words = append(words, "ID", id)
	if wait > 0 && channel != "" {
		words = append(words, "NOTIFY", channel)
	}
	return append(words, r.tail...)
}

func (r *request) extend(token int64, lease time.Duration) []any {
	return r.own("LOCK.EXTEND", "LOCK.MEXTEND", token, "PX", milliseconds(lease))
}

func (r *request) release(token int64) []any {
	return r.own("LOCK.RELEASE", "LOCK.MRELEASE", token)
}

func (r *request) own(command, command2 string, token int64, more ...any) []any {
	if r.form == many {
		command = command2
	}
	words := append([]any{command}, r.named()...)
	return append(append(words, token), more...)
}

// wasHeld reads the reply to RELEASE.
func (r *request) wasHeld(reply any) bool {
	if r.form == many {
		return reply == int64(len(r.keys))
	}
	return reply == int64(1)
}

// milliseconds rounds, but never to 0.
func milliseconds(span time.Duration) int64 {
	return max(1, int64(math.Round(float64(span)/float64(time.Millisecond))))
}
