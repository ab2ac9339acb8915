package redsync

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	goredislib "github.com/redis/go-redis/v9"

	"example.com/serverlock"
	"example.com/serverlock/goredis"
	"example.com/serverlock/redigo"
)

// What redsync's tests expect from their own files: a test case for each client library, and what they read from the
// server. One server replaces theirs, with a database for each library. LOCK.CHECK replaces the comparison of the key's
// value with the mutex's, and the number of pools is only the number of mutexes.

type testCase struct {
	poolCount int
	pools     pool
}

type pool struct {
	locks *serverlock.Locks
	raw   *goredislib.Client
}

func database(number int) (address string, client *goredislib.Client) {
	address = "127.0.0.1:" + os.Getenv("PORT")
	return address, goredislib.NewClient(&goredislib.Options{Addr: address, DB: number})
}

func makeCases(count int) map[string]*testCase {
	_, overGoredis := database(0)
	address, raw := database(1)
	overRedigo := &redis.Pool{MaxIdle: 3, DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", address, redis.DialDatabase(1))
	}}
	return map[string]*testCase{
		"goredis_v9": {count, pool{serverlock.New(goredis.New(overGoredis)), overGoredis}},
		"redigo":     {count, pool{serverlock.New(redigo.New(overRedigo)), raw}},
	}
}

func TestMain(m *testing.M) {
	_, client := database(0)
	if err := client.FlushAll(context.Background()).Err(); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func newTestMutexes(pool pool, name string, n int) []*Mutex {
	mutexes := make([]*Mutex, n)
	for i := range n {
		mutexes[i] = New(pool.locks).NewMutex(name+"-"+strconv.Itoa(i), WithRetryDelay(500*time.Millisecond))
	}
	return mutexes
}

func countAcquiredPools(ctx context.Context, pool pool, mutex *Mutex) int {
	left, err := pool.raw.Do(ctx, "LOCK.CHECK", mutex.name, mutex.value).Int()
	if err != nil {
		panic(err)
	}
	return min(left, 1)
}

func isAcquired(ctx context.Context, pool pool, mutex *Mutex) bool {
	return countAcquiredPools(ctx, pool, mutex) == 1
}

func assertAcquired(ctx context.Context, t *testing.T, pool pool, mutex *Mutex) {
	t.Helper()
	if !isAcquired(ctx, pool, mutex) {
		t.Fatal("the mutex does not hold its lock")
	}
}

func getPoolExpiries(pool pool, name string) []int {
	expiry, err := pool.raw.PTTL(context.Background(), name).Result()
	if err != nil {
		panic(err)
	}
	return []int{int(expiry)}
}
