package redislock_test

import (
	"sync"

	"github.com/redis/go-redis/v9"

	"example.com/serverlock"
	"example.com/serverlock/goredis"
)

var known sync.Map // *redis.Client to *serverlock.Locks

// locksOf returns the one Locks of a client.
func locksOf(client *redis.Client) *serverlock.Locks {
	locks, _ := known.LoadOrStore(client, sync.OnceValue(func() *serverlock.Locks {
		return serverlock.New(goredis.New(client))
	}))
	return locks.(func() *serverlock.Locks)()
}
