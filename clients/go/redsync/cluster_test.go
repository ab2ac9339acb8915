package redsync_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	goredislib "github.com/redis/go-redis/v9"

	"example.com/serverlock"
	"example.com/serverlock/goredis"
	"example.com/serverlock/internal/server"
	"example.com/serverlock/redsync"
)

// openCluster returns a Redsync over its own client, and that client.
func openCluster(t *testing.T, cluster *server.Cluster) (*redsync.Redsync, *goredislib.ClusterClient) {
	t.Helper()
	client := goredislib.NewClusterClient(&goredislib.ClusterOptions{Addrs: cluster.Addresses[:1]})
	locks := serverlock.New(goredis.NewCluster(client), serverlock.WithLogger(slog.New(slog.DiscardHandler)))
	t.Cleanup(func() {
		locks.Close()
		_ = client.Close()
	})
	return redsync.New(locks), client
}

// keysOfAll returns one key for each master.
func keysOfAll(t *testing.T, cluster *server.Cluster) []string {
	t.Helper()
	keys := make([]string, len(cluster.Addresses))
	for number := 0; slices.Contains(keys, ""); number++ {
		key := fmt.Sprint("key", number)
		keys[cluster.Owner(t, key)] = key
	}
	return keys
}

func queued(t *testing.T, client *goredislib.ClusterClient, key string) int64 {
	t.Helper()
	master, err := client.MasterForKey(background, key)
	must(t, err)
	return waiters(t, master, key)
}

func mustBeTaken(t *testing.T, err error) {
	t.Helper()
	var errTaken *redsync.ErrTaken
	if !errors.As(err, &errTaken) {
		t.Fatalf("the error is %v", err)
	}
}

func mustWork(t *testing.T, steps ...func() (bool, error)) {
	t.Helper()
	for number, step := range steps {
		if ok, err := step(); !ok || err != nil {
			t.Fatalf("step %d: %v %v", number, ok, err)
		}
	}
}

func TestItWorksInACluster(t *testing.T) {
	cluster := server.StartCluster(t)
	rs, client := openCluster(t, cluster)
	other, _ := openCluster(t, cluster)

	t.Run("a mutex on any master is held, extended, checked and released", func(t *testing.T) {
		for _, key := range keysOfAll(t, cluster) {
			mutex := rs.NewMutex(key)
			must(t, mutex.Lock())
			mustBeTaken(t, other.NewMutex(key).TryLock())
			mustWork(t, mutex.Extend, mutex.Valid, mutex.Unlock)
			if client.Exists(background, key).Val() != 0 {
				t.Errorf("%s is locked", key)
			}
		}
	})

	t.Run("waiters queue on any master", func(t *testing.T) {
		for _, key := range keysOfAll(t, cluster) {
			first := rs.NewMutex(key)
			must(t, first.Lock())
			served := make(chan int, 3)
			for number := range 3 {
				from := []*redsync.Redsync{rs, other}[number%2]
				go func() {
					mutex := from.NewMutex(key, redsync.WithTries(1000))
					if err := mutex.Lock(); err != nil {
						t.Error(err)
					}
					served <- number
					_, _ = mutex.Unlock()
				}()
				until(t, "it is queued", func() bool { return queued(t, client, key) == int64(number+1) })
			}
			mustWork(t, first.Unlock)
			for number := range 3 {
				if got := <-served; got != number {
					t.Errorf("%s: waiter %d is served instead of %d", key, got, number)
				}
			}
		}
	})

	t.Run("a mutex is restored from its value through another client", func(t *testing.T) {
		for _, key := range keysOfAll(t, cluster) {
			mutex := rs.NewMutex(key)
			must(t, mutex.Lock())
			copied := other.NewMutex(key, redsync.WithValue(mutex.Value()))
			mustWork(t, copied.Valid, copied.Extend, copied.Unlock)
			if ok, err := mutex.Unlock(); ok || err != redsync.ErrLockAlreadyExpired {
				t.Errorf("the second unlock: %v %v", ok, err)
			}
		}
	})

	t.Run("a mutex and its waiter move with their slot", func(t *testing.T) {
		mutex := rs.NewMutex("moves")
		must(t, mutex.Lock())
		waiting := make(chan error, 1)
		next := other.NewMutex("moves", redsync.WithTries(1000))
		go func() { waiting <- next.Lock() }()
		until(t, "it is queued", func() bool { return queued(t, client, "moves") == 1 })
		cluster.Move(t, "moves")
		mustWork(t, mutex.Extend, mutex.Valid)
		copied := other.NewMutex("moves", redsync.WithValue(mutex.Value()))
		mustWork(t, copied.Valid)
		mustWork(t, mutex.Unlock)
		select {
		case err := <-waiting:
			must(t, err)
		case <-time.After(60 * time.Second):
			t.Fatal("nobody gets the lock")
		}
		mustWork(t, next.Unlock)
	})

	t.Run("SetNXOnExtend takes a mutex whose expiry has passed", func(t *testing.T) {
		mutex := rs.NewMutex("expires", redsync.WithExpiry(2*time.Second), redsync.WithSetNXOnExtend())
		must(t, mutex.Lock())
		value := mutex.Value()
		master, err := client.MasterForKey(background, "expires")
		must(t, err)
		expired(t, master, mutex)
		until(t, "its margin has passed", func() bool {
			ok, err := mutex.Extend()
			return ok && err == nil
		})
		if mutex.Value() == value {
			t.Error("an expired mutex was extended")
		}
		mustBeTaken(t, rs.NewMutex("expires").TryLock())
	})
}
