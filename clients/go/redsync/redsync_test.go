package redsync_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	goredislib "github.com/redis/go-redis/v9"

	"example.com/serverlock"
	"example.com/serverlock/goredis"
	"example.com/serverlock/internal/server"
	"example.com/serverlock/redsync"
)

// The cases of redsync's own tests (v4.18.1, mutex_test.go and redsync_test.go), with the server's default settings.
// scripts/compat.sh runs redsync's tests themselves. TestMutexQuorum is left out: there is one server. Where redsync
// compares the key's value with the mutex's, these use LOCK.CHECK. more_test.go goes beyond redsync's tests.

var background = context.Background()

func open(t *testing.T, address string) (*redsync.Redsync, *goredislib.Client) {
	t.Helper()
	client := goredislib.NewClient(&goredislib.Options{Addr: address})
	locks := serverlock.New(goredis.New(client), serverlock.WithLogger(slog.New(slog.DiscardHandler)))
	t.Cleanup(func() {
		locks.Close()
		_ = client.Close()
	})
	return redsync.New(locks), client
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func assertAcquired(t *testing.T, client *goredislib.Client, mutex *redsync.Mutex) {
	t.Helper()
	if left, err := client.Do(background, "LOCK.CHECK", mutex.Name(), mutex.Value()).Int(); err != nil || left <= 0 {
		t.Fatalf("the mutex does not hold its lock: %d %v", left, err)
	}
}

// expired waits until the server would grant the mutex's lock to others. LOCK.CHECK replies 0 up to a millisecond
// earlier.
func expired(t *testing.T, client *goredislib.Client, mutex *redsync.Mutex) {
	t.Helper()
	var since time.Time
	until(t, "the lock has expired", func() bool {
		left, err := client.Do(background, "LOCK.CHECK", mutex.Name(), mutex.Value()).Int()
		if err != nil || left > 0 {
			return false
		}
		clock := client.Time(background).Val()
		if since.IsZero() {
			since = clock
		}
		return clock.Sub(since) > 2*time.Millisecond
	})
}

// expiresAt is when the key expires, by the server's clock.
func expiresAt(t *testing.T, client *goredislib.Client, key string) time.Time {
	t.Helper()
	var left *goredislib.DurationCmd
	var clock *goredislib.TimeCmd
	_, err := client.TxPipelined(background, func(pipe goredislib.Pipeliner) error {
		left, clock = pipe.PTTL(background, key), pipe.Time(background)
		return nil
	})
	must(t, err)
	return clock.Val().Add(left.Val())
}

func TestMutexesWithTheSameNameExcludeEachOther(t *testing.T) {
	rs, client := open(t, server.Start(t))
	var all sync.WaitGroup
	inside := 0
	for range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			mutex := rs.NewMutex("test-mutex")
			if err := mutex.Lock(); err != nil {
				t.Error(err)
				return
			}
			inside++ // the race detector checks this
			if left, err := client.Do(background, "LOCK.CHECK", mutex.Name(), mutex.Value()).Int(); err != nil || left <= 0 {
				t.Errorf("not acquired: %d %v", left, err)
			}
			if ok, err := mutex.Unlock(); !ok || err != nil {
				t.Errorf("unlock: %v %v", ok, err)
			}
		}()
	}
	all.Wait()
	if inside != 8 {
		t.Errorf("%d have had the lock", inside)
	}
}

func TestTryLock(t *testing.T) {
	rs, client := open(t, server.Start(t))
	mutex := rs.NewMutex("test-trylock")
	must(t, mutex.TryLockContext(background))
	if ok, err := mutex.Extend(); err != nil || !ok {
		t.Fatalf("extend: %v %v", ok, err)
	}
	assertAcquired(t, client, mutex)
	if ok, err := mutex.Unlock(); err != nil || !ok {
		t.Fatalf("unlock: %v %v", ok, err)
	}
}

func TestMutexAlreadyLocked(t *testing.T) {
	rs, client := open(t, server.Start(t))
	mutex1 := rs.NewMutex("test-lock")
	must(t, mutex1.Lock())
	assertAcquired(t, client, mutex1)
	var errTaken *redsync.ErrTaken
	if err := rs.NewMutex("test-lock").TryLock(); !errors.As(err, &errTaken) || len(errTaken.Nodes) != 1 {
		t.Fatalf("the error is %v", err)
	}
}

func TestMutexExtend(t *testing.T) {
	rs, client := open(t, server.Start(t))
	mutex := rs.NewMutex("test-mutex-extend")
	must(t, mutex.Lock())
	until(t, "some of its time has passed", func() bool {
		left, err := client.Do(background, "LOCK.CHECK", mutex.Name(), mutex.Value()).Int()
		return err == nil && left < 7900
	})
	before, end := expiresAt(t, client, mutex.Name()), mutex.Until()
	if ok, err := mutex.Extend(); err != nil || !ok {
		t.Fatalf("extend: %v %v", ok, err)
	}
	if after := expiresAt(t, client, mutex.Name()); !after.After(before) {
		t.Fatalf("%v became %v", before, after)
	}
	if !mutex.Until().After(end) {
		t.Fatalf("%v became %v", end, mutex.Until())
	}
}

func TestMutexExtendExpired(t *testing.T) {
	rs, client := open(t, server.Start(t))
	mutex := rs.NewMutex("test-mutex-extend", redsync.WithExpiry(300*time.Millisecond))
	must(t, mutex.Lock())
	expired(t, client, mutex)
	if ok, err := mutex.Extend(); ok || err == nil {
		t.Fatalf("extend: %v %v", ok, err)
	}
}

func TestSetNXOnExtendAcquiresLockWhenKeyIsExpired(t *testing.T) {
	rs, client := open(t, server.Start(t, "margin-ms", "0"))
	mutex := rs.NewMutex("test-mutex-extend", redsync.WithExpiry(2*time.Second), redsync.WithSetNXOnExtend())
	must(t, mutex.Lock())
	expired(t, client, mutex)
	if ok, err := mutex.Extend(); !ok || err != nil {
		t.Fatalf("extend: %v %v", ok, err)
	}
	assertAcquired(t, client, mutex)
}

func TestSetNXOnExtendFailsToAcquireLockWhenKeyIsTaken(t *testing.T) {
	rs, client := open(t, server.Start(t, "margin-ms", "0"))
	first := rs.NewMutex("test-mutex-extend", redsync.WithExpiry(300*time.Millisecond), redsync.WithSetNXOnExtend())
	must(t, first.Lock())
	expired(t, client, first)
	second := rs.NewMutex("test-mutex-extend")
	must(t, second.Lock())
	if ok, err := first.Extend(); ok || err == nil {
		t.Fatalf("extend: %v %v", ok, err)
	}
	assertAcquired(t, client, second)
}

func TestMutexUnlockExpired(t *testing.T) {
	rs, client := open(t, server.Start(t))
	mutex := rs.NewMutex("test-mutex-extend", redsync.WithExpiry(300*time.Millisecond))
	must(t, mutex.Lock())
	expired(t, client, mutex)
	if ok, err := mutex.Unlock(); ok || !errors.Is(err, redsync.ErrLockAlreadyExpired) {
		t.Fatalf("unlock: %v %v", ok, err)
	}
}

func TestValid(t *testing.T) {
	rs, client := open(t, server.Start(t))
	mutex := rs.NewMutex("test-shared-lock", redsync.WithExpiry(time.Hour))
	must(t, mutex.Lock())
	assertAcquired(t, client, mutex)
	if ok, err := mutex.Valid(); err != nil || !ok {
		t.Fatalf("valid: %v %v", ok, err)
	}
	short := []redsync.Option{redsync.WithTries(3), redsync.WithRetryDelay(50 * time.Millisecond)}
	var errTaken *redsync.ErrTaken
	if err := rs.NewMutex("test-shared-lock", short...).Lock(); !errors.As(err, &errTaken) {
		t.Fatalf("the error is %v", err)
	}
	must(t, client.Del(background, "test-shared-lock").Err())
	if ok, err := mutex.Valid(); err != nil || ok {
		t.Fatalf("valid: %v %v", ok, err)
	}
}

func TestMutexLockUnlockSplit(t *testing.T) {
	address := server.Start(t)
	rs, client := open(t, address)
	other, _ := open(t, address)
	mutex1 := rs.NewMutex("test-split-lock", redsync.WithExpiry(time.Hour))
	must(t, mutex1.Lock())
	assertAcquired(t, client, mutex1)
	mutex2 := other.NewMutex("test-split-lock", redsync.WithExpiry(time.Hour), redsync.WithValue(mutex1.Value()))
	if ok, err := mutex2.Extend(); err != nil || !ok {
		t.Fatalf("extend: %v %v", ok, err)
	}
	if ok, err := mutex2.Unlock(); err != nil || !ok {
		t.Fatalf("unlock: %v %v", ok, err)
	}
	if client.Exists(background, "test-split-lock").Val() != 0 {
		t.Error("it is still locked")
	}
	if _, err := strconv.ParseInt(mutex1.Value(), 10, 64); err != nil {
		t.Error(err)
	}
}
