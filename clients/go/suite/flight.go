package main

import (
	"context"
	"encoding/hex"
	"unicode/utf8"

	"example.com/serverlock"
)

// singleFlight asks for a value. With a scope, the orders for the scope decide how long this caller computes it, and
// whether that fails.
func (p *player) singleFlight(ctx context.Context, o *order) (ok fields, err error) {
	if o.Body == "" {
		return p.fly(ctx, o)
	}
	get(p, p.scopes, o.Body).do(func(ctx context.Context) (bool, error) {
		ok, err = p.fly(ctx, o)
		return false, nil
	})
	return ok, err
}

func (p *player) fly(ctx context.Context, o *order) (fields, error) {
	asked, err := o.singleFlight(get(p, p.locks, o.Manager), fields{"scope": o.Scope})
	if err != nil {
		return nil, err
	}
	value, err := bytesOf(o.Value, "value")
	if err != nil {
		return nil, err
	}
	mine := newBody(func(ctx context.Context, _ *order) (fields, error) {
		return answered(ctx, asked, value, func(context.Context) error { return nil })
	})
	return answered(ctx, asked, value, func(ctx context.Context) error {
		if o.Scope == "" {
			return nil
		}
		return p.work(ctx, o, mine)
	})
}

// answered asks for the value. This caller's own would be ready after the work.
func answered(
	ctx context.Context, asked *serverlock.SingleFlight, own []byte, work func(ctx context.Context) error,
) (fields, error) {
	hasComputed := false
	value, err := asked.Do(ctx, func(ctx context.Context) ([]byte, error) {
		err := work(ctx)
		hasComputed = err == nil
		return own, err
	})
	if err != nil {
		return nil, err
	}
	var shown any = string(value)
	if !utf8.Valid(value) {
		shown = fields{"hex": hex.EncodeToString(value)}
	}
	return fields{"value": shown, "computed": hasComputed}, nil
}

func (o *order) singleFlight(locks *serverlock.Locks, names fields) (*serverlock.SingleFlight, error) {
	lease, err := span(o.LeaseMs)
	if err != nil {
		return nil, err
	}
	key, err := keyOf(o.Key)
	if err != nil {
		return nil, err
	}
	options, err := o.options()
	if err != nil {
		return nil, err
	}
	return locks.SingleFlight(key, lease, append(options, o.onLost(names))...), nil
}
