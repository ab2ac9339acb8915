// Plays what tests/integration/languages asks for, with the lock of examples/go.
//
// A line of JSON in, a line of JSON out; see tests/integration/languages/driver.rs.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gomodule/redigo/redis"
	"redislock"
)

type order struct {
	Do, Key, Prefix, Owner string
	Port                   int
	LeaseMs                int64 `json:"lease_ms"`
	WaitMs                 int64 `json:"wait_ms"`
	TimeoutMs              int64 `json:"timeout_ms"`
	Session, Fallback      bool
}

type line map[string]interface{}

var errWork = errors.New("the work failed")

func main() {
	orders, clients, cancel := make(chan order), map[int]redis.Conn{}, func() {}
	lines := bufio.NewScanner(os.Stdin)
	done := make(chan struct{}, 1)
	done <- struct{}{} // nothing is being done
	for lines.Scan() {
		var next order
		if err := json.Unmarshal(lines.Bytes(), &next); err != nil {
			panic(err)
		}
		if next.Do == "cancel" {
			cancel()
			continue
		}
		select {
		case orders <- next: // to the work, if it listens
			continue
		case <-done:
		}
		var ctx context.Context
		ctx, cancel = context.WithCancel(context.Background())
		go func() {
			if next.Do == "ping" {
				ping(clients, next.Port)
			} else if err := hold(ctx, next, orders); err != nil {
				say(line{"event": "error", "kind": kind(err), "name": fmt.Sprintf("%T", err), "text": err.Error()})
			}
			done <- struct{}{}
		}()
	}
}

func hold(ctx context.Context, wanted order, orders <-chan order) error {
	ms, warned := time.Millisecond, ""
	dial := func(ctx context.Context) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", wanted.Port))
	}
	lock, ctx, err := redislock.Acquire(ctx, dial, wanted.Prefix+wanted.Key, redislock.Options{
		Lease: time.Duration(wanted.LeaseMs) * ms, Wait: time.Duration(wanted.WaitMs) * ms,
		Timeout: time.Duration(wanted.TimeoutMs) * ms, Owner: wanted.Owner, Session: wanted.Session,
		Fallback: wanted.Fallback, Warn: func(warning string) { warned = warning },
	})
	if err != nil {
		return err
	}
	defer lock.Release()
	held := line{"event": "held", "token": nil, "warned": warned}
	if lock.Token() != 0 {
		held["token"] = lock.Token()
	}
	say(held)
	select {
	case <-ctx.Done():
		say(line{"event": "stopped", "left_ms": lock.Left().Seconds() * 1000})
		return lock.Err()
	case next := <-orders:
		if next.Do == "fail" {
			return errWork
		}
	}
	if err := lock.Release(); err != nil {
		return err
	}
	say(line{"event": "left"})
	return nil
}

func ping(clients map[int]redis.Conn, port int) {
	if clients[port] == nil {
		conn, err := redis.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			panic(err)
		}
		clients[port] = conn
	}
	reply, err := redis.String(clients[port].Do("ECHO", "hello"))
	if err != nil {
		panic(err)
	}
	say(line{"event": "pong", "reply": reply})
}

func kind(err error) string {
	for known, kind := range map[error]string{
		redislock.ErrRefused: "refused", context.Canceled: "refused", redislock.ErrLost: "lost",
		redislock.ErrUnsupported: "unsupported", redislock.ErrReply: "reply", errWork: "work",
	} {
		if errors.Is(err, known) {
			return kind
		}
	}
	return "connection"
}

func say(what line) {
	text, err := json.Marshal(what)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}
