package serverlock

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strings"
	"sync"
	"time"
)

const (
	portableMargin    = int64(1000)
	portableRetention = int64(60_000)
	// How long the reply about the eviction policy is valid. After a failover, the new server's policy may differ.
	policyValidFor = time.Minute
	// How long calls do without queues before one of them checks again whether the user may use queues.
	remembersDenial = time.Minute
)

//go:embed lock.lua
var library string

// script is the function library without its first line.
var script, scriptDigest = func() (string, string) {
	source := library
	if strings.HasPrefix(source, "#!") {
		_, source, _ = strings.Cut(source, "\n")
	}
	digest := sha1.Sum([]byte(source))
	return source, hex.EncodeToString(digest[:])
}()

// portableFenced is the script's CHECK, followed by one user command.
const portableFenced = `
local time, token = redis.call('TIME'), ('%016.0f'):format(ARGV[1])
local value, ends = redis.pcall('GET', KEYS[1]), nil
if value and value.err then -- a sorted set; otherwise ZRANGE fails for the same reason
  local holders = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
  for i = 1, #holders, 2 do
    if holders[i]:sub(1, 16) == token then ends = holders[i + 1] end
  end
else
  ends = value and value:match('^(%d%d%d%d%d%d%d%d%d%d%.%d%d%d%d%d%d)' .. token)
end
if not ends or ends - 1 <= time[1] + time[2] / 1000000 then return {'LOCK.LOST'} end
return {redis.call(unpack(ARGV, 2))}`

// functions maps the module's commands to the script's functions.
var functions = map[string]string{
	"LOCK.ACQUIRE": "lock_acquire", "LOCK.MACQUIRE": "lock_acquire_all", "LOCK.RECOVER": "lock_recover",
	"LOCK.EXTEND": "lock_extend", "LOCK.MEXTEND": "lock_extend_all", "LOCK.CHECK": "lock_check",
	"LOCK.RELEASE": "lock_release", "LOCK.MRELEASE": "lock_release_all", "LOCK.CANCEL": "lock_cancel",
	"LOCK.INFO": "lock_info",
}

// portable is the same lock without the module: the script, called by its hash. Keys, values, replies and errors are
// the same as with the commands. Each lock has its queue as a second key. If the user may not use the queue, or the
// slot is being migrated, calls name only the lock.
type portable struct {
	engine *engine

	mu          sync.Mutex
	isLoaded    bool
	retention   int64
	askedAt     time.Duration
	hasAsked    bool
	deniedUntil time.Duration // the user may not use queues
}

func newPortable(e *engine) *portable { return &portable{engine: e, retention: -1} }

// send sends one command to a key's server.
type send func(words []any) (any, error)

// hasQueue reports whether attempts for this lock can wait in a queue.
func (p *portable) hasQueue(r *request) bool {
	return r.form != many && r.queues()[0] != "" && !(r.worksAlone() && p.isDenied())
}

// cancel ends an attempt's wait, and releases the lock if it was granted.
func (p *portable) cancel(ctx context.Context, r *request, id string) error {
	send := func(words []any) (any, error) { return p.engine.router.call(ctx, r.key(), words, p.engine.timeout) }
	if p.hasQueue(r) {
		c := r.whole("LOCK.CANCEL", "", append([]any{"ID", id, "NOTIFY", p.engine.subscription.channel}, r.kind...)...)
		_, err := p.call(send, c)
		if !r.worksAlone() || !isRefusedQueue(err) {
			return err
		}
	}
	// Acquiring with the same ID returns the same token.
	again := r.whole("LOCK.ACQUIRE", "LOCK.MACQUIRE", "PX", int64(1), "ID", id)
	again.isAlone = r.worksAlone()
	reply, err := p.call(send, again)
	if token, ok := reply.(int64); ok && err == nil {
		_, err = p.call(send, r.release(token))
	}
	return err
}

// call calls the script once.
func (p *portable) call(send send, c *call) (any, error) {
	if err := p.askPolicy(send, c); err != nil {
		return nil, err
	}
	mayBeAlone := c.request.worksAlone() && c.command != "LOCK.CANCEL"
	queues := c.request.queues()[c.first : c.first+len(c.keys)]
	if mayBeAlone && (c.isAlone || queues[0] == "" || p.isDenied()) {
		return p.sent(send, c, nil)
	}
	reply, err := p.sent(send, c, queues)
	if !mayBeAlone || !isRefusedQueue(err) {
		return reply, err
	}
	isDenied := codeOf(err) == "NOPERM"
	reply, err = p.sent(send, c, nil)
	if isDenied && err == nil {
		p.mu.Lock()
		p.deniedUntil = p.engine.now() + remembersDenial
		p.mu.Unlock()
	}
	return reply, err
}

// sent sends a call, with the script's text if the server does not have the script.
func (p *portable) sent(send send, c *call, queues []string) (any, error) {
	reply, err := send(p.words(c, queues))
	if codeOf(err) == "NOSCRIPT" {
		p.setLoaded(false)
		reply, err = send(p.words(c, queues))
	}
	if err == nil {
		p.setLoaded(true)
	}
	return reply, err
}

func (p *portable) words(c *call, queues []string) []any {
	p.mu.Lock()
	by, source, retention := "EVAL", script, p.retention
	if p.isLoaded {
		by, source = "EVALSHA", scriptDigest
	}
	p.mu.Unlock()
	words := make([]any, 0, len(c.keys)+len(queues)+len(c.args)+len(c.waits)+6)
	words = append(words, by, source, int64(len(c.keys)+len(queues)))
	for _, key := range c.keys {
		words = append(words, key)
	}
	for _, queue := range queues {
		words = append(words, queue)
	}
	words = append(append(words, functions[c.command], portableMargin, retention), c.args...)
	if queues != nil {
		words = append(words, c.waits...)
	}
	return words
}

func (p *portable) isDenied() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.engine.now() < p.deniedUntil
}

func (p *portable) setLoaded(isLoaded bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isLoaded = isLoaded
}

// isRefusedQueue reports whether a call with two keys is impossible, because of the user's permissions or because their
// slot is being migrated.
func isRefusedQueue(err error) bool { return codeOf(err) == "NOPERM" || codeOf(err) == "TRYAGAIN" }

// askPolicy decides how long released and expired keys stay. A volatile eviction policy may evict keys that have an
// expiry. So under such a policy, and while the policy is unknown, lock keys get no expiry.
func (p *portable) askPolicy(send send, c *call) error {
	acquires := strings.HasSuffix(c.command, "ACQUIRE") || c.command == "LOCK.RECOVER"
	p.mu.Lock()
	isKnown := p.hasAsked && (!acquires || p.engine.now() < p.askedAt+policyValidFor)
	p.mu.Unlock()
	if isKnown {
		return nil
	}
	reply, err := send([]any{"INFO", "memory"})
	if err != nil && codeOf(err) == "" {
		return err
	}
	_, policy, ok := strings.Cut(text(reply), "maxmemory_policy:")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hasAsked, p.askedAt, p.retention = true, p.engine.now(), -1
	if ok && !strings.HasPrefix(policy, "volatile") {
		p.retention = portableRetention
	}
	return nil
}
