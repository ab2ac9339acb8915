package serverlock

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
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

// request holds a lock's options, checked before anything is sent, and builds the words of its commands.
type request struct {
	settings
	keys  []string
	name  string
	lease time.Duration
	form  form
	kind  []any // SHARED, or LIMIT n
	err   error // a bad argument
	// A holder's result ends the attempt too: see [SingleFlight].
	wantsResult bool
	tail        []any // the words after the ID

	naming     sync.Once
	queueNames []string
}

func newRequest(keys []string, lease time.Duration, form form, kind []any, options []Option) *request {
	r := &request{keys: keys, name: shown(keys), lease: lease, form: form, kind: kind}
	r.within = time.Second
	r.owner, r.owned = hostAndPID(), true
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
	if r.reentrant && r.form == recovery {
		return "reentrant is not an option of Recover"
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
	return len(owner) >= 1 && len(owner) <= longestOwner
}

// key determines the server.
func (r *request) key() string { return r.keys[0] }

func (r *request) isExclusive() bool { return len(r.kind) == 0 }

func (r *request) sharesKey(other *request) bool {
	return slices.ContainsFunc(r.keys, func(key string) bool { return slices.Contains(other.keys, key) })
}

// isSameLock reports whether the keys, in any order, and the kind are the same.
func (r *request) isSameLock(other *request) bool {
	return slices.Equal(r.kind, other.kind) && slices.Equal(slices.Sorted(slices.Values(r.keys)),
		slices.Sorted(slices.Values(other.keys)))
}

// needsConnection reports whether the grant is tied to a connection.
func (r *request) needsConnection() bool { return r.session || r.replicas > 0 || r.fsync }

// needsModule returns why the script cannot grant this lock; "" if it can.
func (r *request) needsModule() string {
	if r.session {
		return "Session needs the module, which is not loaded"
	}
	if r.worksAlone() || !slices.Contains(r.queues(), "") {
		return ""
	}
	what := [...]string{"AllOf", "Shared", "Limit"}[len(r.kind)]
	return what + " needs the module, which is not loaded, if a key has a brace but no hash tag"
}

// worksAlone reports whether the script can grant this lock without its queue.
func (r *request) worksAlone() bool { return r.isExclusive() && r.form != many }

// queues returns the names of the keys' queues; "" for a key without one.
func (r *request) queues() []string {
	r.naming.Do(func() {
		for _, key := range r.keys {
			r.queueNames = append(r.queueNames, queueOf(key))
		}
	})
	return r.queueNames
}

var hashTag = regexp.MustCompile(`^[^{]*\{[^}]+\}`)

// queueOf returns the name of a key's queue, in the same slot. A key with a brace but without a hash tag has none.
func queueOf(key string) string { return beside(key, ":queue") }

// resultOf returns the name of the key with the result of a key's last holder, likewise.
func resultOf(key string) string { return beside(key, ":result") }

func beside(key, what string) string {
	switch {
	case !strings.ContainsAny(key, "{}"):
		return key + what + ":{" + key + "}"
	case hashTag.MatchString(key):
		return key + what
	}
	return ""
}

// call is one command for a lock. The script has a function for each, which takes the same options.
type call struct {
	request *request
	command string
	first   int // the number of its first key
	keys    []string
	args    []any
	waits   []any // WAIT and NOTIFY
	results []any // RESULT, which only the module takes
	isAlone bool  // the script is called without the queue
}

// words returns the command's words.
func (c *call) words() []any {
	words := make([]any, 0, len(c.keys)+len(c.args)+len(c.waits)+len(c.results)+2)
	words = append(words, c.command)
	if strings.HasPrefix(c.command, "LOCK.M") {
		words = append(words, int64(len(c.keys)))
	}
	for _, key := range c.keys {
		words = append(words, key)
	}
	return append(append(append(words, c.args...), c.waits...), c.results...)
}

func (c *call) key() string { return c.keys[0] }

func (r *request) whole(command, several string, args ...any) *call {
	if r.form == many {
		command = several
	}
	return &call{request: r, command: command, keys: r.keys, args: args}
}

// acquire requests the lock: at once, blocking, or waiting for messages on a channel.
func (r *request) acquire(id string, wait time.Duration, channel string) *call {
	c := r.whole("LOCK.ACQUIRE", "LOCK.MACQUIRE", append([]any{"PX", milliseconds(r.lease), "ID", id}, r.tail...)...)
	if r.form == recovery {
		c.command = "LOCK.RECOVER"
	}
	if wait > 0 && channel != "" {
		c.waits = []any{"WAIT", milliseconds(min(wait, longestNotify)), "NOTIFY", channel}
	} else if wait > 0 {
		c.waits = []any{"WAIT", milliseconds(min(wait, tenYears))}
	}
	if wait > 0 && r.wantsResult {
		c.results = []any{"RESULT"}
	}
	return c
}

func (r *request) extend(token int64, lease time.Duration) *call {
	return r.whole("LOCK.EXTEND", "LOCK.MEXTEND", token, "PX", milliseconds(lease))
}

func (r *request) release(token int64) *call { return r.whole("LOCK.RELEASE", "LOCK.MRELEASE", token) }

// releaseWith passes a result on to those that wait for it, unless it is nil.
func (r *request) releaseWith(token int64, result []byte) *call {
	c := r.release(token)
	if result != nil {
		c.results = []any{"RESULT", result}
	}
	return c
}

// check asks about one of the keys.
func (r *request) check(number int, token int64) *call {
	return &call{
		request: r, command: "LOCK.CHECK", first: number, keys: r.keys[number : number+1], args: []any{token},
	}
}

func (r *request) info() *call { return r.whole("LOCK.INFO", "") }

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
