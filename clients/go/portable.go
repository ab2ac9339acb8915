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
	// How long the reply about the eviction policy is valid: a failover may bring another server.
	policyCounts = time.Minute
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

// portableFenced is the CHECK of the script, followed by one command of the user.
const portableFenced = `
local value, time = redis.call('GET', KEYS[1]), redis.call('TIME')
local ends = value and value:match('^(%d%d%d%d%d%d%d%d%d%d%.%d%d%d%d%d%d)' .. ('%016.0f'):format(ARGV[1]))
if not ends or tonumber(ends) - 1 <= time[1] + time[2] / 1000000 then return {'LOCK.LOST'} end
return {redis.call(unpack(ARGV, 2))}`

// portable is the same lock without the module: the script, called by its hash. Keys, values, replies and errors are
// those of the commands, for one key with one holder.
type portable struct {
	engine *engine

	mu        sync.Mutex
	isLoaded  bool
	retention int64
	askedAt   time.Duration
	hasAsked  bool
}

func newPortable(e *engine) *portable { return &portable{engine: e, retention: -1} }

// send sends one command to the server of a key.
type send func(words []any) (any, error)

func (p *portable) acquire(send send, r *request, id string) (any, error) {
	if err := p.askPolicy(send); err != nil {
		return nil, err
	}
	name := "lock_acquire"
	if r.form == recovery {
		name = "lock_recover"
	}
	return p.call(send, r, name, r.acquire(id, 0, "")[2:]...)
}

// cancel releases what this ID may have been granted: acquiring with the same ID returns the same token.
func (p *portable) cancel(ctx context.Context, r *request, id string) error {
	send := func(words []any) (any, error) { return p.engine.router.call(ctx, r.key(), words, p.engine.timeout) }
	reply, err := p.call(send, r, "lock_acquire", "PX", int64(1), "ID", id)
	if token, ok := reply.(int64); ok && err == nil {
		_, err = p.call(send, r, "lock_release", token)
	}
	return err
}

func (p *portable) words(r *request, name string, args ...any) []any {
	p.mu.Lock()
	defer p.mu.Unlock()
	by, source := "EVAL", script
	if p.isLoaded {
		by, source = "EVALSHA", scriptDigest
	}
	return append([]any{by, source, int64(1), r.key(), name, portableMargin, p.retention}, args...)
}

// missed is called when the server does not have the script.
func (p *portable) missed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isLoaded = false
}

func (p *portable) call(send send, r *request, name string, args ...any) (any, error) {
	call := func() (any, error) {
		reply, err := send(p.words(r, name, args...))
		if err == nil {
			p.mu.Lock()
			p.isLoaded = true
			p.mu.Unlock()
		}
		return reply, err
	}
	reply, err := call()
	if answer, ok := as[*replyError](err); ok && answer.code == "NOSCRIPT" {
		p.missed()
		return call()
	}
	return reply, err
}

// askPolicy decides how long released and expired keys stay. A volatile eviction policy may evict keys that have an
// expiry, so lock keys get none under it, nor while the policy is unknown.
func (p *portable) askPolicy(send send) error {
	p.mu.Lock()
	isKnown := p.hasAsked && now() < p.askedAt+policyCounts
	p.mu.Unlock()
	if isKnown {
		return nil
	}
	reply, err := send([]any{"INFO", "memory"})
	if _, ok := as[*replyError](err); err != nil && !ok {
		return err
	}
	_, policy, ok := strings.Cut(text(reply), "maxmemory_policy:")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hasAsked, p.askedAt, p.retention = true, now(), -1
	if ok && !strings.HasPrefix(policy, "volatile") {
		p.retention = portableRetention
	}
	return nil
}
