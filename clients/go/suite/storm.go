package main

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"example.com/serverlock"
	"example.com/serverlock/internal/adapter"
)

// storm runs attempts that are cancelled at random moments, some of them together.
func (p *player) storm(ctx context.Context, o *order) (fields, error) {
	lease, err := span(o.LeaseMs)
	if err != nil {
		return nil, err
	}
	var options []serverlock.Option
	if o.WaitMs != nil {
		wait, err := span(o.WaitMs)
		if err != nil {
			return nil, err
		}
		options = append(options, serverlock.Wait(wait))
	}
	var all []func(ctx context.Context) error
	for _, raw := range o.Among {
		key, err := keyOf(raw)
		if err != nil {
			return nil, err
		}
		all = append(all, stormer(get(p, p.locks, o.Manager), o.Flight, key, lease, options))
	}
	var mu sync.Mutex
	tally, failed, left := map[string]int{"granted": 0, "cancelled": 0, "refused": 0}, []string{}, o.Attempts
	next := func() bool {
		mu.Lock()
		defer mu.Unlock()
		left--
		return left >= 0
	}
	var attempts sync.WaitGroup
	for range o.AtOnce {
		attempts.Add(1)
		go func() {
			defer attempts.Done()
			for next() {
				ctx, cancel := cancelled(ctx, o)
				err := all[rand.IntN(len(all))](ctx)
				cancel()
				mu.Lock()
				switch kind := codeOf(err); kind {
				case "granted", "cancelled", "refused":
					tally[kind]++
				case "timeout":
					tally["refused"]++
				default:
					failed = append(failed, err.Error())
				}
				mu.Unlock()
			}
		}()
	}
	attempts.Wait()
	return fields{
		"granted": tally["granted"], "cancelled": tally["cancelled"], "refused": tally["refused"],
		"failed": failed[:min(len(failed), 10)],
	}, nil
}

// stormer returns a function that makes one attempt.
func stormer(
	locks *serverlock.Locks, isFlight bool, key string, lease time.Duration, options []serverlock.Option,
) func(ctx context.Context) error {
	if !isFlight {
		lock := locks.Lock(key, lease, options...)
		return func(ctx context.Context) error { return lock.Do(ctx, func(context.Context) error { return nil }) }
	}
	asked := locks.SingleFlight(key, lease, options...)
	return func(ctx context.Context) error {
		_, err := asked.Do(ctx, func(context.Context) ([]byte, error) { return []byte("value"), nil })
		return err
	}
}

// cancelled returns a context that is done at a random moment, usually an early one.
func cancelled(ctx context.Context, o *order) (context.Context, context.CancelFunc) {
	const together = 5e6
	at := time.Now().Add(time.Duration(o.Within * math.Pow(rand.Float64(), 3) * float64(time.Millisecond)))
	if rand.N(4) == 0 {
		at = time.Unix(0, int64(math.Ceil(float64(at.UnixNano())/together)*together))
	}
	if o.Means == "deadline" {
		return context.WithDeadline(ctx, at)
	}
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(time.Until(at), cancel)
	return ctx, func() { timer.Stop(); cancel() }
}

func codeOf(err error) string {
	var ours *serverlock.Error
	switch {
	case err == nil:
		return "granted"
	case errors.As(err, &ours):
		return ours.Code()
	}
	return ""
}

// census counts what all managers keep, and the goroutines other than those for orders and idle connections.
func (p *player) census() (fields, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	counts := fields{"tasks": runtime.NumGoroutine() - len(p.pending)}
	for _, locks := range p.locks {
		for name, count := range adapter.Census(locks) {
			if name == "idle" {
				name, count = "tasks", -count
			}
			before, _ := counts[name].(int)
			counts[name] = before + count
		}
	}
	return counts, nil
}
