package main

import (
	"context"
	"strings"

	"example.com/serverlock"
	"example.com/serverlock/locktest"
)

// server returns the in-memory server with that name, created on first use.
func (p *player) server(name string) *locktest.Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.servers[name] == nil {
		p.servers[name] = locktest.NewServer()
	}
	return p.servers[name]
}

func (p *player) openMemory(o *order, options []serverlock.ManagerOption) {
	server := p.server(o.At.Name)
	put(p, p.locks, o.Manager, server.Locks(options...))
	put(p, p.clients, o.Manager, client{do: func(_ context.Context, words []any) (any, error) {
		if len(words) != 2 || !strings.EqualFold(words[0].(string), "LOCK.INFO") {
			return nil, cannot("a raw command that is not LOCK.INFO key")
		}
		info := server.Info(words[1].(string))
		return fields{"state": info.State, "token": info.Token, "owner": info.Owner, "waiters": info.Waiters}, nil
	}})
}

// change changes an in-memory server.
func (p *player) change(o *order) error {
	server := p.server(o.Name)
	switch o.Do {
	case "advance":
		by, err := span(o.Ms)
		if err == nil {
			server.Clock.Advance(by)
		}
		return err
	case "lose":
		held := get(p, p.holds, o.Hold)
		if o.Scope != "" {
			held = get(p, p.scopes, o.Scope).held
		}
		server.Lose(held)
		return nil
	}
	key, err := keyOf(o.Key)
	if err != nil {
		return err
	}
	switch o.Do {
	case "expire":
		server.Expire(key)
	case "refuse":
		server.Refuse(key, serverlock.ErrUnavailable)
	case "allow":
		server.Allow(key)
	}
	return nil
}
