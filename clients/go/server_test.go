package serverlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/serverlock"
	"example.com/serverlock/goredis"
)

// module is the file of the server's module. Who tests this package without the rest of the repository has none.
func module(t *testing.T) string {
	t.Helper()
	path := os.Getenv("SERVERLOCK_MODULE")
	if path == "" {
		path = filepath.Join("..", "..", "target", "release", "libredis_lock.so")
		if _, err := os.Stat(path); err != nil {
			t.Skip("no module: set SERVERLOCK_MODULE")
		}
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return absolute
}

// startServer starts a server of the test's own, and gives its address.
func startServer(t *testing.T) string {
	t.Helper()
	words := []string{"--loadmodule", module(t), "--save", "", "--dir", t.TempDir(), "--bind", "127.0.0.1"}
	binary := os.Getenv("REDIS_SERVER")
	if binary == "" {
		binary = "redis-server"
	}
	for range 5 { // somebody else may take the port first
		probe, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := probe.Addr().(*net.TCPAddr).Port
		_ = probe.Close()
		log := filepath.Join(t.TempDir(), "log")
		server := exec.Command(binary, append(words, "--port", fmt.Sprint(port), "--logfile", log)...)
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { _ = server.Wait(); close(ended) }()
		t.Cleanup(func() { _ = server.Process.Kill(); <-ended })
		address := fmt.Sprintf("127.0.0.1:%d", port)
		if answers(address, ended) {
			return address
		}
		said, _ := os.ReadFile(log)
		t.Logf("the server ended:\n%s", said)
	}
	t.Fatal("no server")
	return ""
}

func answers(address string, ended <-chan struct{}) bool {
	client := redis.NewClient(&redis.Options{Addr: address, DialTimeout: time.Second})
	defer func() { _ = client.Close() }()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if client.Ping(context.Background()).Err() == nil {
			return true
		}
		select {
		case <-ended:
			return false
		default:
		}
	}
	return false
}

// open gives Locks of a new client, and the client.
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
			t.Fatalf("not within 20 s: %s", what)
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
