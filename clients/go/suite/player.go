package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"example.com/serverlock"
	"example.com/serverlock/locktest"
)

// player carries out orders.
type player struct {
	library library
	mu      sync.Mutex
	clients map[string]client
	locks   map[string]*serverlock.Locks
	objects map[string]*serverlock.Lock
	holds   map[string]*serverlock.Held
	scopes  map[string]*body
	workers map[string]*body
	leaders map[string]*campaign
	pending map[int]context.CancelFunc
	servers map[string]*locktest.Server // in memory
}

// body is a scope's work, which runs the tasks it receives.
type body struct {
	again      func(ctx context.Context, o *order) (fields, error) // asks for the scope's lock again
	held       *serverlock.Held
	session    *serverlock.SessionLocks
	steps      chan func(ctx context.Context) (isOver bool, err error)
	isReleased atomic.Bool
}

type campaign struct {
	leader *serverlock.Leader
	stop   context.CancelFunc
	ended  chan struct{}
}

func newBody(again func(ctx context.Context, o *order) (fields, error)) *body {
	return &body{again: again, steps: make(chan func(context.Context) (bool, error))}
}

func newPlayer(library library) *player {
	return &player{
		library: library, clients: map[string]client{}, locks: map[string]*serverlock.Locks{},
		objects: map[string]*serverlock.Lock{}, holds: map[string]*serverlock.Held{}, scopes: map[string]*body{}, workers: map[string]*body{},
		leaders: map[string]*campaign{}, pending: map[int]context.CancelFunc{}, servers: map[string]*locktest.Server{},
	}
}

func get[K comparable, V any](p *player, from map[K]V, name K) V {
	p.mu.Lock()
	defer p.mu.Unlock()
	return from[name]
}

func put[K comparable, V any](p *player, into map[K]V, name K, value V) {
	p.mu.Lock()
	defer p.mu.Unlock()
	into[name] = value
}

// begin returns an order's context, which another order may cancel until the first has ended.
func (p *player) begin(n int) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	put(p, p.pending, n, cancel)
	return ctx
}

func (p *player) end(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending[n]()
	delete(p.pending, n)
}

func (p *player) play(ctx context.Context, o *order) (fields, error) {
	switch o.Do {
	case "open":
		return nil, p.open(o)
	case "close":
		get(p, p.locks, o.Manager).Close()
		return nil, nil
	case "raw":
		words := make([]any, len(o.Args))
		for at, word := range o.Args {
			words[at] = word
		}
		reply, err := get(p, p.clients, o.Manager).do(ctx, words)
		return fields{"reply": plain(reply)}, err
	case "object":
		lock, err := o.lock(get(p, p.locks, o.Manager), fields{"object": o.Object})
		put(p, p.objects, o.Object, lock)
		return nil, err
	case "acquire":
		return p.acquire(ctx, o)
	case "scope":
		return nil, p.scope(ctx, o)
	case "once":
		return p.once(ctx, o)
	case "single_flight":
		return p.singleFlight(ctx, o)
	case "cancel":
		if cancel := get(p, p.pending, o.Of); cancel != nil {
			cancel()
		}
		return nil, nil
	case "lead", "resign", "stop", "observe":
		return nil, p.lead(o)
	case "leave", "fail", "again", "spawn":
		return p.within(o)
	case "storm":
		return p.storm(ctx, o)
	case "advance", "expire", "lose", "refuse", "allow":
		return nil, p.change(o)
	case "census":
		return p.census()
	case "drop":
		p.mu.Lock()
		delete(p.holds, o.Hold)
		p.mu.Unlock()
		for range 5 {
			runtime.GC()
			time.Sleep(10 * time.Millisecond)
		}
		return nil, nil
	}
	return p.withHeld(ctx, o)
}

func (p *player) withHeld(ctx context.Context, o *order) (fields, error) {
	held := get(p, p.holds, o.Hold)
	if o.Scope != "" {
		held = get(p, p.scopes, o.Scope).held
	}
	switch o.Do {
	case "check":
		return fields{"left_ms": ms(held.Left())}, held.Check()
	case "left":
		return fields{"left_ms": ms(held.Left())}, nil
	case "verify":
		left, err := held.Verify(ctx)
		return fields{"left_ms": ms(left)}, err
	case "extend":
		var lease time.Duration
		if o.LeaseMs != nil {
			var err error
			if lease, err = span(o.LeaseMs); err != nil {
				return nil, err
			}
		}
		return nil, held.Extend(ctx, lease)
	case "release":
		if o.Scope != "" {
			get(p, p.scopes, o.Scope).isReleased.Store(true)
		}
		err := held.Release(ctx)
		if isLost(err) {
			return fields{"held": false}, nil
		}
		return fields{"held": true}, err
	case "fenced":
		words := []any{}
		for _, word := range o.Args[2:] {
			words = append(words, word)
		}
		reply, err := held.Fenced(ctx, o.Args[0], o.Args[1], words...)
		return fields{"reply": plain(reply)}, err
	}
	return nil, cannot(o.Do)
}

func (p *player) open(o *order) error {
	options := []serverlock.ManagerOption{
		serverlock.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))),
	}
	if o.TimeoutMs != nil {
		timeout, err := span(o.TimeoutMs)
		if err != nil {
			return err
		}
		options = append(options, serverlock.WithTimeout(timeout))
	}
	if o.Portable != nil && !*o.Portable {
		options = append(options, serverlock.WithoutScripts())
	}
	if o.Hooks {
		options = append(options, serverlock.WithHooks(hooks(o.Manager)))
	}
	if o.At.Kind == "memory" {
		p.openMemory(o, options)
		return nil
	}
	opened, err := p.library.open(o)
	if err != nil {
		return err
	}
	put(p, p.clients, o.Manager, opened)
	put(p, p.locks, o.Manager, serverlock.New(opened.driver, options...))
	return nil
}

func hooks(manager string) serverlock.Hooks {
	report := func(name, key, field string, span time.Duration) {
		say(fields{"event": "hook", "manager": manager, "name": name, "key": key, field: ms(span)})
	}
	return serverlock.Hooks{
		Granted:  func(key string, waited time.Duration) { report("granted", key, "waited_ms", waited) },
		Refused:  func(key string, waited time.Duration, _ error) { report("refused", key, "waited_ms", waited) },
		Lost:     func(key string, held time.Duration, _ error) { report("lost", key, "held_ms", held) },
		Released: func(key string, held time.Duration, _ bool) { report("released", key, "held_ms", held) },
	}
}

// theLock returns an order's lock. Its session lock is one of this session.
func (p *player) theLock(o *order, names fields, session *serverlock.SessionLocks) (*serverlock.Lock, error) {
	if o.Object != "" {
		return get(p, p.objects, o.Object), nil
	}
	if o.Session && session != nil {
		return o.lock(session, names)
	}
	return o.lock(get(p, p.locks, o.Manager), names)
}

func (p *player) acquire(ctx context.Context, o *order) (ok fields, err error) {
	if o.Body == "" {
		return p.acquireIn(ctx, o, nil)
	}
	mine := get(p, p.scopes, o.Body)
	mine.do(func(ctx context.Context) (bool, error) {
		if o.CancelMs != nil {
			after, _ := span(o.CancelMs)
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, after)
			defer cancel()
		}
		ok, err = p.acquireIn(ctx, o, mine.session)
		return false, nil
	})
	return ok, err
}

func (p *player) acquireIn(ctx context.Context, o *order, session *serverlock.SessionLocks) (fields, error) {
	lock, err := p.theLock(o, fields{"hold": o.Hold}, session)
	if err != nil {
		return nil, err
	}
	held, err := lock.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	put(p, p.holds, o.Hold, held)
	return got(held), nil
}

func got(held *serverlock.Held) fields {
	ok := fields{"token": held.Token(), "predecessor": nil}
	if before := held.Predecessor(); before != nil {
		ok["predecessor"] = fields{"overdue_ms": ms(before.Overdue), "token": before.Token, "owner": before.Owner}
	}
	return ok
}

func (p *player) scope(ctx context.Context, o *order) error {
	session := get(p, p.locks, o.Manager).Session()
	lock, err := p.theLock(o, fields{"scope": o.Scope}, session)
	if err != nil {
		return err
	}
	mine := newBody(func(ctx context.Context, o *order) (ok fields, err error) {
		if o.Nested {
			err = lock.Do(ctx, func(ctx context.Context) error {
				ok = got(serverlock.FromContext(ctx))
				return nil
			})
			return ok, err
		}
		held, err := lock.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		if o.Hold != "" {
			put(p, p.holds, o.Hold, held)
		}
		return got(held), nil
	})
	mine.session = session
	return lock.Do(ctx, func(ctx context.Context) error { return p.work(ctx, o, mine) })
}

// work does what the orders for a scope's body say.
func (p *player) work(ctx context.Context, o *order, mine *body) error {
	mine.held = serverlock.FromContext(ctx)
	put(p, p.scopes, o.Scope, mine)
	say(fields{"event": "entered", "scope": o.Scope, "token": mine.held.Token()})
	lost := ctx.Done()
	for {
		select {
		case step := <-mine.steps:
			if isOver, err := step(ctx); isOver {
				return err
			}
		case <-lost:
			lost = nil
			if mine.isReleased.Load() {
				continue
			}
			say(fields{"event": "stopped", "scope": o.Scope})
			if !o.Stays {
				return ctx.Err()
			}
		}
	}
}

func (p *player) once(ctx context.Context, o *order) (fields, error) {
	once, err := o.once(get(p, p.locks, o.Manager), fields{"scope": o.Scope})
	if err != nil {
		return nil, err
	}
	if o.Scope == "" {
		var value any
		outcome, err := once.Do(ctx, func(_ context.Context, held *serverlock.HeldOnce) error {
			value = fmt.Sprintf("tick %d", held.Tick())
			return nil
		})
		return fields{"outcome": outcome, "value": value}, err
	}
	mine := newBody(func(ctx context.Context, _ *order) (fields, error) {
		outcome, err := once.Do(ctx, func(context.Context, *serverlock.HeldOnce) error { return nil })
		return fields{"outcome": outcome}, err
	})
	outcome, err := once.Do(ctx, func(ctx context.Context, _ *serverlock.HeldOnce) error { return p.work(ctx, o, mine) })
	return fields{"outcome": outcome}, err
}

// within runs something in a scope's body.
func (p *player) within(o *order) (ok fields, err error) {
	mine := get(p, p.scopes, o.Scope)
	if o.Worker != "" && o.Do == "again" {
		mine = get(p, p.workers, o.Worker)
	}
	mine.do(func(ctx context.Context) (isOver bool, failure error) {
		switch o.Do {
		case "leave":
			return true, nil
		case "fail":
			return true, errWork
		case "spawn":
			worker := newBody(mine.again)
			put(p, p.workers, o.Worker, worker)
			go func() {
				for step := range worker.steps {
					_, _ = step(ctx)
				}
			}()
			return false, nil
		}
		ok, err = mine.again(ctx, o)
		return false, nil
	})
	return ok, err
}

// do runs a step in the body. The work's context is done when its lock is lost or released; the step's is not, but
// knows its scope.
func (b *body) do(step func(ctx context.Context) (isOver bool, err error)) {
	done := make(chan struct{})
	b.steps <- func(ctx context.Context) (bool, error) {
		defer close(done)
		return step(context.WithoutCancel(ctx))
	}
	<-done
}

func (p *player) lead(o *order) error {
	known := get(p, p.leaders, o.Leader)
	switch o.Do {
	case "resign":
		known.leader.Resign()
		return nil
	case "stop":
		known.stop()
		<-known.ended
		return nil
	}
	lease, err := span(o.LeaseMs)
	if err != nil {
		return err
	}
	key, err := keyOf(o.Key)
	if err != nil {
		return err
	}
	options, err := o.options()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &campaign{leader: get(p, p.locks, o.Manager).Leader(key, lease, options...), stop: stop, ended: make(chan struct{})}
	if o.Do == "observe" {
		go c.observe(ctx, o.Observer)
		return nil
	}
	put(p, p.leaders, o.Leader, c)
	go c.run(ctx, o.Leader)
	return nil
}

func (c *campaign) run(ctx context.Context, name string) {
	defer close(c.ended)
	err := c.leader.Run(ctx, func(ctx context.Context, token int64) {
		say(fields{"event": "elected", "leader": name, "token": token})
		<-ctx.Done()
		say(fields{"event": "deposed", "leader": name, "token": token})
	})
	if err != nil {
		say(fields{"event": "failed", "leader": name, "text": err.Error()})
	}
}

func (c *campaign) observe(ctx context.Context, name string) {
	for leader := range c.leader.Observe(ctx) {
		line := fields{"event": "leader", "observer": name, "token": nil, "owner": nil}
		if leader.Token != 0 {
			line["token"], line["owner"] = leader.Token, leader.Owner
		}
		say(line)
	}
}
