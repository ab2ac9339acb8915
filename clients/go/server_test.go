package serverlock_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/serverlock"
	"example.com/serverlock/goredis"
	"example.com/serverlock/internal/server"
)

// startServer starts a server for the test, and returns its address.
func startServer(t *testing.T) string {
	t.Helper()
	return server.Start(t)
}

// open returns the Locks of a new client, and the client.
func open(t *testing.T, address string, options ...serverlock.ManagerOption) (*serverlock.Locks, *redis.Client) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: address})
	quiet := serverlock.WithLogger(slog.New(slog.DiscardHandler))
	locks := serverlock.New(goredis.New(client), append([]serverlock.ManagerOption{quiet}, options...)...)
	t.Cleanup(func() {
		locks.Close()
		_ = client.Close()
	})
	return locks, client
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out after 20 s: %s", what)
		}
	}
}

func isFree(t *testing.T, client *redis.Client, key string) bool {
	t.Helper()
	count, err := client.Exists(context.Background(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	return count == 0
}

func mustBe(t *testing.T, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("the error is %v, not of kind %q", err, kind)
	}
	var typed *serverlock.Error
	if kind != nil && !errors.As(err, &typed) {
		t.Fatalf("the error is a %T", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
