package redislock_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	goredislib "github.com/redis/go-redis/v9"

	"example.com/serverlock"
	"example.com/serverlock/goredis"
	"example.com/serverlock/internal/server"
	"example.com/serverlock/redislock"
)

// What redislock's own tests leave out. scripts/compat.sh runs those.

var background = context.Background()

func open(t *testing.T) (*serverlock.Locks, *goredislib.Client) {
	t.Helper()
	client := goredislib.NewClient(&goredislib.Options{Addr: server.Start(t)})
	locks := serverlock.New(goredis.New(client), serverlock.WithLogger(slog.New(slog.DiscardHandler)))
	t.Cleanup(func() {
		locks.Close()
		_ = client.Close()
	})
	return locks, client
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func info(t *testing.T, client *goredislib.Client) map[any]any {
	t.Helper()
	reply, err := client.Do(background, "LOCK.INFO", "a").Result()
	must(t, err)
	return reply.(map[any]any)
}

func TestALockIsObtainedRefreshedAndReleased(t *testing.T) {
	locks, client := open(t)
	client2 := redislock.New(locks)
	lock, err := client2.Obtain(background, "a", time.Hour, &redislock.Options{Metadata: "job-7"})
	must(t, err)
	if lock.Key() != "a" || lock.Metadata() != "job-7" || lock.Token() == "" {
		t.Errorf("the lock is %q %q %q", lock.Key(), lock.Metadata(), lock.Token())
	}
	if owner := info(t, client)["owner"]; owner != "job-7" {
		t.Errorf("the owner is %v", owner)
	}
	must(t, lock.Refresh(background, time.Minute, nil))
	if left, err := lock.TTL(background); err != nil || left <= 0 || left > time.Minute {
		t.Errorf("the TTL is %v, %v", left, err)
	}
	if _, err := client2.Obtain(background, "a", time.Hour, nil); err != redislock.ErrNotObtained {
		t.Errorf("a second one: %v", err)
	}
	must(t, lock.Release(background))
	if err := lock.Release(background); err != redislock.ErrLockNotHeld {
		t.Errorf("the second release: %v", err)
	}
	if err := lock.Refresh(background, time.Minute, nil); err != redislock.ErrNotObtained {
		t.Errorf("a refresh after it: %v", err)
	}
	if left, err := lock.TTL(background); left != 0 || err != nil {
		t.Errorf("the TTL after it: %v %v", left, err)
	}
}

func TestMetadataThatCannotBeAnOwnerStaysWithTheLock(t *testing.T) {
	locks, client := open(t)
	for _, metadata := range []string{`{"a": 1}`, strings.Repeat("x", 129), "größer"} {
		lock, err := redislock.Obtain(background, locks, "a", time.Hour, &redislock.Options{Metadata: metadata})
		must(t, err)
		if owner := info(t, client)["owner"]; owner != nil || lock.Metadata() != metadata {
			t.Errorf("%q: the owner is %v, the metadata %q", metadata, owner, lock.Metadata())
		}
		must(t, lock.Release(background))
	}
}

func TestACallerThatRetriesWaitsInTheQueue(t *testing.T) {
	locks, client := open(t)
	first, err := redislock.Obtain(background, locks, "a", time.Hour, nil)
	must(t, err)
	obtained := make(chan error, 1)
	go func() {
		retry := redislock.ExponentialBackoff(16*time.Millisecond, time.Second)
		_, err := redislock.Obtain(background, locks, "a", time.Hour, &redislock.Options{RetryStrategy: retry})
		obtained <- err
	}()
	for end := time.Now().Add(time.Minute); info(t, client)["waiters"] != int64(1); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not wait")
		}
	}
	must(t, first.Release(background))
	must(t, <-obtained)
}

func TestTheContextOrTheTTLEndsAnAttempt(t *testing.T) {
	locks, _ := open(t)
	_, err := redislock.Obtain(background, locks, "a", time.Hour, nil)
	must(t, err)
	forever := &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Millisecond)}
	if _, err := redislock.Obtain(background, locks, "a", 50*time.Millisecond, forever); err != context.DeadlineExceeded {
		t.Errorf("without a deadline: %v", err)
	}
	ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
	defer cancel()
	if _, err := redislock.Obtain(ctx, locks, "a", time.Hour, forever); err != context.DeadlineExceeded {
		t.Errorf("with one: %v", err)
	}
}

func TestWhatCannotBeKeptIsRefused(t *testing.T) {
	locks, client := open(t)
	_, err := redislock.Obtain(background, locks, "a", time.Hour, &redislock.Options{Token: "mine"})
	if !errors.Is(err, serverlock.ErrArgument) {
		t.Errorf("a token: %v", err)
	}
	must(t, client.RPush(background, "list", "x").Err())
	if _, err := redislock.Obtain(background, locks, "list", time.Hour, nil); !errors.Is(err, serverlock.ErrArgument) {
		t.Errorf("a list: %v", err)
	}
	lock, err := redislock.Obtain(background, locks, "a", time.Hour, nil)
	must(t, err)
	if err := lock.Refresh(background, 0, nil); !errors.Is(err, serverlock.ErrArgument) {
		t.Errorf("a TTL of 0: %v", err)
	}
}

func TestStrategiesGiveTheBackoffsOfRedislock(t *testing.T) {
	limited := redislock.LimitRetry(redislock.LinearBackoff(time.Second), 2)
	exponential := redislock.ExponentialBackoff(10*time.Millisecond, 30*time.Millisecond)
	for number, want := range []time.Duration{10, 10, 16, 30, 30} {
		if got := exponential.NextBackoff(); got != want*time.Millisecond {
			t.Errorf("backoff %d is %v", number, got)
		}
	}
	for number, want := range []time.Duration{time.Second, time.Second, 0, 0} {
		if got := limited.NextBackoff(); got != want {
			t.Errorf("limited backoff %d is %v", number, got)
		}
	}
	if redislock.NoRetry().NextBackoff() != 0 {
		t.Error("NoRetry retries")
	}
}
