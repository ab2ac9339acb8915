package serverlock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	goredislib "github.com/redis/go-redis/v9"

	"example.com/serverlock/driver"
	"example.com/serverlock/goredis"
	"example.com/serverlock/internal/server"
	"example.com/serverlock/redigo"
)

// Thousands of attempts are cancelled at random moments, one by one or many at a time. This ends only those attempts.

const (
	stormers = 100
	turns    = 50
)

// slow delays each exchange, so that calls are cancelled in flight and others queue behind them.
type slow struct{ node driver.Node }

func (s slow) Node(context.Context, string) (driver.Node, error) { return s, nil }

func (s slow) Exchange(ctx context.Context, calls []*driver.Call) {
	time.Sleep(rand.N(2 * time.Millisecond))
	s.node.Exchange(ctx, calls)
}

func (s slow) Dial(ctx context.Context) (driver.Conn, error) { return s.node.Dial(ctx) }

func TestAStormOfCancellationsAffectsNoOtherCaller(t *testing.T) {
	for _, one := range []struct {
		name string
		open func(address string) driver.Client
	}{
		{"go-redis", func(address string) driver.Client {
			return goredis.New(goredislib.NewClient(&goredislib.Options{Addr: address}))
		}},
		{"redigo", func(address string) driver.Client {
			return redigo.New(&redis.Pool{MaxIdle: 4, DialContext: func(ctx context.Context) (redis.Conn, error) {
				return redis.DialContext(ctx, "tcp", address)
			}})
		}},
		{"go-redis, slow", func(address string) driver.Client {
			return slow{goredis.New(goredislib.NewClient(&goredislib.Options{Addr: address})).(driver.Node)}
		}},
	} {
		t.Run(one.name, func(t *testing.T) {
			address := server.Start(t)
			client := goredislib.NewClient(&goredislib.Options{Addr: address})
			defer func() { _ = client.Close() }()
			locks := opened(t, one.open(address))
			bystanders := opened(t, goredis.New(client))
			theirs, err := bystanders.Lock("busy", 10*time.Minute).Acquire(context.Background())
			mustNot(t, err)
			before := runtime.NumGoroutine()
			storm(t, locks)
			fresh(t, locks)

			free := func() bool {
				for number := range stormers {
					info := client.Do(context.Background(), "LOCK.INFO", fmt.Sprint("own", number)).Val().(map[any]any)
					if info["state"] != "free" {
						return false
					}
				}
				return true
			}
			waiting := func(key string) int64 {
				info := client.Do(context.Background(), "LOCK.INFO", key).Val().(map[any]any)
				return info["waiters"].(int64)
			}
			eventually(t, "no lock and no wait is left", func() bool {
				return free() && waiting("busy") == 0 && waiting("passed") == 0
			})
			mustNot(t, theirs.Check())
			mustNot(t, theirs.Release(context.Background()))
			fresh(t, locks)
			eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before+8 })
			leavesNothing(t, locks.engine)
		})
	}
}

// storm: each goroutine cancels attempts for its own key, for one that all pass around, and for one that is never free.
func storm(t *testing.T, locks *Locks) {
	var all sync.WaitGroup
	var mu sync.Mutex
	together, giveUp := context.WithCancel(context.Background())
	for number := range stormers {
		all.Add(1)
		go func() {
			defer all.Done()
			kinds := []*Lock{
				locks.Lock(fmt.Sprint("own", number), time.Minute),
				locks.Lock("passed", time.Minute, Wait(time.Minute)),
				locks.Lock("busy", time.Minute, Wait(time.Minute)),
			}
			for turn := range turns {
				mu.Lock()
				if turn%5 == 4 && rand.N(10) == 0 { // ends all attempts that share the context, in one batch or several
					giveUp()
					together, giveUp = context.WithCancel(context.Background())
				}
				around := together
				mu.Unlock()
				ctx, cancel := context.WithTimeout(around, rand.N(5*time.Millisecond))
				held, err := kinds[rand.N(len(kinds))].Acquire(ctx)
				if err == nil {
					err = held.Release(ctx)
				} else if code := err.(*Error).Code(); code == "cancelled" || code == "refused" { // by an attempt cancelled earlier
					err = nil
				}
				cancel()
				if err != nil {
					t.Error(err)
				}
			}
		}()
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	eventually(t, "each attempt has ended", func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	giveUp()
}

// fresh acquires a lock with and without a wait. A stuck manager would fail after its time-out.
func fresh(t *testing.T, locks *Locks) {
	t.Helper()
	held, err := locks.Lock("fresh", time.Minute).Acquire(context.Background())
	mustNot(t, err)
	passed := make(chan error)
	go func() {
		again, err := locks.Lock("fresh", time.Minute, Wait(time.Minute)).Acquire(context.Background())
		if err == nil {
			err = again.Release(context.Background())
		}
		passed <- err
	}()
	mustNot(t, held.Release(context.Background()))
	mustNot(t, <-passed)
}

func leavesNothing(t *testing.T, e *engine) {
	t.Helper()
	eventually(t, "nothing is left in the process", func() bool {
		for name, count := range e.census() {
			if count > 0 && name != "idle" {
				return false
			}
		}
		return true
	})
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<16)
			t.Fatalf("not within 60 s: %s\n%s", what, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

func mustNot(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
