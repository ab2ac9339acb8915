// One process of the client benchmark, in Go: bench CONTENDER PORT. run.py describes its input.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"example.com/serverlock"
	"example.com/serverlock/goredis"
)

const lease = 30 * time.Second

var background = context.Background()

// lock acquires, and returns the function that releases.
type lock func() (release func() error, err error)

// kinds return a lock for a key and a wait.
var kinds = map[string]func(client *redis.Client) func(key string, wait time.Duration) lock{
	"package": func(client *redis.Client) func(string, time.Duration) lock {
		locks := serverlock.New(goredis.New(client))
		return func(key string, wait time.Duration) lock {
			described := locks.Lock(key, lease, serverlock.Wait(wait))
			return func() (func() error, error) {
				held, err := described.Acquire(background)
				if err != nil {
					return nil, err
				}
				return func() error { return held.Release(background) }, nil
			}
		}
	},
	"raw": func(client *redis.Client) func(string, time.Duration) lock {
		return func(key string, wait time.Duration) lock {
			words := []any{"LOCK.ACQUIRE", key, "PX", lease.Milliseconds()}
			if wait > 0 {
				words = append(words, "WAIT", wait.Milliseconds())
			}
			return func() (func() error, error) {
				token, err := client.Do(background, words...).Int64()
				return func() error { return client.Do(background, "LOCK.RELEASE", key, token).Err() }, err
			}
		}
	},
	"redsync": func(client *redis.Client) func(string, time.Duration) lock {
		rs := redsync.New(redsyncgoredis.NewPool(client))
		return func(key string, wait time.Duration) lock {
			return func() (func() error, error) {
				mutex := rs.NewMutex(key, redsync.WithExpiry(lease), redsync.WithTries(1+int(wait/(50*time.Millisecond))))
				return func() error { _, err := mutex.Unlock(); return err }, mutex.Lock()
			}
		}
	},
	"redislock": func(client *redis.Client) func(string, time.Duration) lock {
		locker := redislock.New(client)
		return func(key string, wait time.Duration) lock {
			options := &redislock.Options{}
			if wait > 0 {
				options.RetryStrategy = redislock.LinearBackoff(100 * time.Millisecond)
			}
			return func() (func() error, error) {
				held, err := locker.Obtain(background, key, lease, options)
				return func() error { return held.Release(background) }, err
			}
		}
	},
}

func main() {
	library, kind, _ := strings.Cut(os.Args[1], " ")
	if library != "go-redis" || kinds[kind] == nil {
		log.Fatalf("no contender %q", os.Args[1])
	}
	// Raw commands wait in the server for longer than the library waits for a reply by default.
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[2], ReadTimeout: 90 * time.Second})
	locked := kinds[kind](client)
	key := fmt.Sprintf("bench:%d", os.Getpid())
	pairs(locked(key, 0), 3) // connects, loads scripts
	fmt.Println("ready")
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		words := strings.Fields(orders.Text())
		before := cpu()
		var answer any
		switch words[0] {
		case "pair":
			seconds := pairs(locked(key, 0), int(number(words[1])))
			answer = []any{seconds, cpu() - before}
		case "hot":
			waits := hot(locked(words[1], time.Minute), number(words[2]))
			answer = []any{waits, cpu() - before}
		case "waits":
			for n := range int(number(words[1])) {
				go func() { _, _ = locked(fmt.Sprintf("waits:%d", n), 10*time.Minute)() }()
			}
		default:
			answer = resident()
		}
		said, err := json.Marshal(answer)
		must(err)
		fmt.Println(string(said))
	}
}

func pairs(acquire lock, count int) float64 {
	began := time.Now()
	for range count {
		release, err := acquire()
		must(err)
		must(release())
	}
	return time.Since(began).Seconds()
}

// hot returns how long each grant took, in microseconds.
func hot(acquire lock, seconds float64) []int64 {
	waits := []int64{}
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	for asked := time.Now(); asked.Before(end); asked = time.Now() {
		release, err := acquire()
		must(err)
		waits = append(waits, time.Since(asked).Microseconds())
		must(release())
	}
	return waits
}

// cpu returns this process's CPU seconds.
func cpu() float64 {
	var used syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return float64(used.Utime.Sec+used.Stime.Sec) + float64(used.Utime.Usec+used.Stime.Usec)/1e6
}

// resident returns the resident memory, in KB.
func resident() int {
	text, err := os.ReadFile("/proc/self/statm")
	must(err)
	return int(number(strings.Fields(string(text))[1])) * os.Getpagesize() / 1024
}

func number(text string) float64 {
	value, err := strconv.ParseFloat(text, 64)
	must(err)
	return value
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
