// Waits for a lock with go-redis and its default time-outs and retries.
//
//	go_redis PORT KEY OWNER [ID]
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"
)

func main() {
	port, key, owner := os.Args[1], os.Args[2], os.Args[3]
	ctx, client := context.Background(), redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port})
	command := []any{"LOCK.ACQUIRE", key, "EX", 60, "WAIT", 20000, "OWNER", owner}
	if len(os.Args) > 4 {
		command = append(command, "ID", os.Args[4])
	}
	token, err := client.Do(ctx, command...).Int64()
	if err != nil {
		fmt.Println("gave up:", err)
		return
	}
	fmt.Println("token", token)
	fmt.Println("released", client.Do(ctx, "LOCK.RELEASE", key, token).Val())
}
