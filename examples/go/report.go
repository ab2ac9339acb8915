package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"example.com/serverlock"
	"example.com/serverlock/goredis"
	"github.com/redis/go-redis/v9"
)

func main() {
	locks := serverlock.New(goredis.New(redis.NewClient(&redis.Options{Addr: "localhost:6379"}))) // one per Redis client
	err := locks.Lock("report", 10*time.Second, serverlock.Wait(time.Minute)).Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("working, token", serverlock.FromContext(ctx).Token())
		for step := 0; step < 10 && ctx.Err() == nil; step++ { // cancelled when the lock is lost
			time.Sleep(time.Second)
		}
		return ctx.Err()
	})
	if err != nil {
		log.Fatal(err) // of kind ErrTimeout if somebody else still had it, of kind ErrLost if it was lost
	}
}
