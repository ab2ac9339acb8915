package redsync_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	goredislib "github.com/redis/go-redis/v9"

	"example.com/serverlock"
	"example.com/serverlock/goredis"
	"example.com/serverlock/internal/server"
	"example.com/serverlock/redsync"
)

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// waiters returns the length of the queue.
func waiters(t *testing.T, client *goredislib.Client, key string) int64 {
	t.Helper()
	reply, err := client.Do(background, "LOCK.INFO", key).Result()
	must(t, err)
	switch fields := reply.(type) {
	case map[any]any:
		return fields["waiters"].(int64)
	case []any:
		return fields[slices.Index(fields, any("waiters"))+1].(int64)
	}
	t.Fatalf("LOCK.INFO returned a %T", reply)
	return 0
}

func TestWaitersQueue(t *testing.T) {
	rs, client := open(t, server.Start(t))
	first := rs.NewMutex("a")
	must(t, first.Lock())
	var mu sync.Mutex
	var order []int
	var all sync.WaitGroup
	for number := range 5 {
		all.Add(1)
		go func() {
			defer all.Done()
			mutex := rs.NewMutex("a", redsync.WithTries(1000))
			if err := mutex.Lock(); err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, number)
			mu.Unlock()
			_, _ = mutex.Unlock()
		}()
		until(t, "it is queued", func() bool { return waiters(t, client, "a") == int64(number+1) })
	}
	if ok, err := first.Unlock(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	all.Wait()
	if !slices.Equal(order, []int{0, 1, 2, 3, 4}) {
		t.Errorf("the order is %v", order)
	}
}

func TestAMutexIsValidUntilItsExpiry(t *testing.T) {
	rs, client := open(t, server.Start(t))
	mutex := rs.NewMutex("a", redsync.WithExpiry(2*time.Second), redsync.WithDriftFactor(0.5))
	began := time.Now()
	must(t, mutex.Lock())
	locked := time.Now()
	// The mutex is valid for its whole expiry, less the drift; a Held would be valid for nine tenths of it.
	least, most := began.Add(999*time.Millisecond-locked.Sub(began)), locked.Add(1001*time.Millisecond)
	if mutex.Until().Before(least) || mutex.Until().After(most) {
		t.Errorf("Until is %v, not between %v and %v", mutex.Until(), least, most)
	}
	time.Sleep(time.Until(began.Add(1900 * time.Millisecond))) // a Held would count as lost
	if ok, err := mutex.Valid(); err == nil && !ok && time.Since(began) < 2*time.Second {
		t.Error("it is not valid until its expiry")
	}
	// Nothing renews it.
	stats := client.Info(background, "commandstats").Val()
	if strings.Contains(strings.ToLower(stats), "cmdstat_lock.extend") {
		t.Errorf("it was renewed:\n%s", stats)
	}
	until(t, "it has ended", func() bool {
		left, err := client.Do(background, "LOCK.CHECK", "a", mutex.Value()).Int()
		return err == nil && left == 0
	})
}

func TestAContextEndsAnAttempt(t *testing.T) {
	rs, client := open(t, server.Start(t))
	theirs := rs.NewMutex("a")
	must(t, theirs.Lock())
	ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
	defer cancel()
	if err := rs.NewMutex("a", redsync.WithTries(1000)).LockContext(ctx); err != redsync.ErrFailed {
		t.Errorf("the error is %v", err)
	}
	if ok, err := theirs.UnlockContext(ctx); !ok || err != nil {
		t.Error(ok, err)
	}
	if client.Exists(background, "a").Val() != 0 {
		t.Error("it is locked")
	}
}

func TestServerAndConnectionErrorsAreReturned(t *testing.T) {
	address := server.Start(t)
	rs, client := open(t, address)
	must(t, client.RPush(background, "list", "x").Err())
	var redisError *redsync.RedisError
	for name, kind := range map[string]error{"list": serverlock.ErrArgument} {
		if err := rs.NewMutex(name).Lock(); !errors.As(err, &redisError) || !errors.Is(err, kind) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	if err := rs.NewMutex("a", redsync.WithExpiry(0)).Lock(); !errors.Is(err, serverlock.ErrArgument) {
		t.Errorf("the error is %v", err)
	}
	probe, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	nowhere := goredislib.NewClient(&goredislib.Options{Addr: probe.Addr().String()})
	must(t, probe.Close())
	locks := serverlock.New(goredis.New(nowhere))
	defer locks.Close()
	if err := redsync.New(locks).NewMutex("a").TryLock(); !errors.As(err, &redisError) || !errors.Is(err, serverlock.ErrNoServer) {
		t.Errorf("the error is %v", err)
	}
	for _, mutex := range []*redsync.Mutex{rs.NewMutex("a"), rs.NewMutex("a", redsync.WithValue("mine"))} {
		if ok, err := mutex.Unlock(); ok || err != redsync.ErrLockAlreadyExpired {
			t.Errorf("unlock: %v %v", ok, err)
		}
		if ok, err := mutex.Valid(); ok || err != nil {
			t.Errorf("valid: %v %v", ok, err)
		}
	}
	mutex := rs.NewMutex("b")
	must(t, mutex.Lock())
	_, _ = mutex.Unlock()
	if ok, err := mutex.Unlock(); ok || err != redsync.ErrLockAlreadyExpired {
		t.Errorf("the second unlock: %v %v", ok, err)
	}
}

func TestWithoutTheModuleItWorksThroughTheScript(t *testing.T) {
	rs, _ := open(t, server.StartPlain(t))
	mutex := rs.NewMutex("a")
	must(t, mutex.Lock())
	var errTaken *redsync.ErrTaken
	if err := rs.NewMutex("a").TryLock(); !errors.As(err, &errTaken) {
		t.Errorf("the error is %v", err)
	}
	for _, step := range []func() (bool, error){mutex.Extend, mutex.Valid, mutex.Unlock} {
		if ok, err := step(); !ok || err != nil {
			t.Error(ok, err)
		}
	}
}
