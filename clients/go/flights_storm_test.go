package serverlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"example.com/serverlock"
	"example.com/serverlock/internal/adapter"
	"example.com/serverlock/internal/server"
)

// Many callers of single flights are cancelled at random moments, on real servers.

func TestAStormOfCancelledCallersLeavesNothing(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) string{
		"module": startServer, "script": func(t *testing.T) string { return server.StartPlain(t) },
	} {
		t.Run(name, func(t *testing.T) {
			address := start(t)
			locks, client := open(t, address)
			other, _ := open(t, address)
			var all sync.WaitGroup
			for number := range 300 {
				all.Add(1)
				go func() {
					defer all.Done()
					cancelledCall(t, []*serverlock.Locks{locks, other}[number%2], fmt.Sprint("key ", number%3))
				}()
			}
			all.Wait()
			for number := range 3 {
				until(t, "the lock is free", func() bool { return isFree(t, client, fmt.Sprint("key ", number)) })
			}
			for _, one := range []*serverlock.Locks{locks, other} {
				until(t, "nothing is left in the process", func() bool {
					for name, count := range adapter.Census(one) {
						if count > 0 && name != "idle" {
							return false
						}
					}
					return true
				})
			}
		})
	}
}

// cancelledCall makes one call, which half of the time is cancelled early.
func cancelledCall(t *testing.T, locks *serverlock.Locks, key string) {
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	if rand.N(2) == 0 {
		ctx, cancel = context.WithTimeout(ctx, rand.N(20*time.Millisecond))
		defer cancel()
	}
	value, err := locks.SingleFlight(key, 10*time.Minute, serverlock.Wait(10*time.Minute)).Do(ctx, func(ctx context.Context) ([]byte, error) {
		select {
		case <-time.After(rand.N(5 * time.Millisecond)):
			return []byte("value of " + key), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	isCancelled := ctx.Err() != nil && errors.Is(err, ctx.Err())
	if !isCancelled && (err != nil || string(value) != "value of "+key) {
		t.Errorf("%s: %q, %v", key, value, err)
	}
}
