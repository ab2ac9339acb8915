package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"example.com/serverlock"
	"example.com/serverlock/goredis"
)

// makers connect a contender.
var makers = map[string]func(ports []string) (contender, error){
	"go-redis package":             newPackage(),
	"go-redis package, script":     newPackage(),
	"go-redis package, replicas=1": newPackage(serverlock.Replicas(1, time.Second)),
	"go-redis session":             newPackage(serverlock.Session()),
	"go-redis raw": func(ports []string) (contender, error) {
		return rawCommands{connect(ports, mostClients)}, nil
	},
	"go-redis raw, 10,000 connections": func(ports []string) (contender, error) {
		return rawCommands{connect(ports, 10_000)}, nil
	},
	"go-redis raw NOTIFY": newNotified,
	"go-redis SET and DEL": func(ports []string) (contender, error) {
		return setAndDel{connect(ports, mostClients)}, nil
	},
	"redsync": func(ports []string) (contender, error) {
		return redsyncLocks{redsync.New(redsyncgoredis.NewPool(connect(ports, mostClients)))}, nil
	},
	"bsm/redislock": func(ports []string) (contender, error) {
		return redislocks{redislock.New(connect(ports, mostClients))}, nil
	},
	"etcd":                     newEtcd,
	"PostgreSQL advisory lock": newPostgres(advisory),
	"PostgreSQL FOR UPDATE":    newPostgres(forUpdate),
}

const mostClients = 256

// connect has up to this many connections: one for each client, because plain commands wait in the server. The first
// port is that of the master.
func connect(ports []string, connections int) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:" + ports[0], PoolSize: connections, ReadTimeout: 2 * wait, DialTimeout: time.Minute,
	})
}

type packageLocks struct {
	locks   *serverlock.Locks
	options []serverlock.Option
}

func newPackage(options ...serverlock.Option) func(ports []string) (contender, error) {
	return func(ports []string) (contender, error) {
		locks := serverlock.New(goredis.New(connect(ports, mostClients)))
		return packageLocks{locks, append(options, serverlock.Wait(wait))}, nil
	}
}

func (p packageLocks) lock(_ int, key string) lock {
	return acquiring(p.locks.Lock(key, lease, p.options...))
}

func (p packageLocks) slots(_ int, key string, permits int) lock {
	return acquiring(p.locks.Limit(key, permits, lease, p.options...))
}

func (p packageLocks) shared(_ int, key string) lock {
	return acquiring(p.locks.Shared(key, lease, p.options...))
}

func acquiring(described *serverlock.Lock) lock {
	return func() (held, error) {
		got, err := described.Acquire(background)
		if err != nil {
			return nil, err
		}
		return packageHeld{got}, nil
	}
}

type packageHeld struct{ held *serverlock.Held }

func (h packageHeld) Release() error { return h.held.Release(background) }
func (h packageHeld) Token() int64   { return h.held.Token() }

// granted is a grant of plain LOCK.* commands.
type granted struct {
	client *redis.Client
	key    string
	token  int64
}

func (g granted) Release() error {
	return g.client.Do(background, "LOCK.RELEASE", g.key, g.token).Err()
}
func (g granted) Token() int64 { return g.token }

type rawCommands struct{ client *redis.Client }

func (r rawCommands) lock(_ int, key string) lock { return r.acquiring(key) }

func (r rawCommands) slots(_ int, key string, permits int) lock {
	return r.acquiring(key, "LIMIT", permits)
}

func (r rawCommands) acquiring(key string, kind ...any) lock {
	words := append([]any{"LOCK.ACQUIRE", key, "PX", lease.Milliseconds(), "WAIT", wait.Milliseconds()}, kind...)
	return func() (held, error) {
		token, err := r.client.Do(background, words...).Int64()
		return granted{r.client, key, token}, err
	}
}

// notified waits with NOTIFY: one subscription for all waits of the process.
type notified struct {
	client  *redis.Client
	channel string
	mutex   sync.Mutex
	turns   map[int64]chan struct{}
}

func newNotified(ports []string) (contender, error) {
	client := connect(ports, mostClients)
	n := &notified{client: client, channel: fmt.Sprintf("peers:%d", nextID()), turns: map[int64]chan struct{}{}}
	subscription := client.Subscribe(background, n.channel)
	if _, err := subscription.Receive(background); err != nil {
		return nil, err
	}
	go n.listen(subscription.Channel(redis.WithChannelSize(4096)))
	return n, nil
}

func (n *notified) listen(messages <-chan *redis.Message) {
	for message := range messages {
		words := strings.SplitN(message.Payload, " ", 3)
		id, err := strconv.ParseInt(words[1], 10, 64)
		must(err)
		n.mutex.Lock()
		if turn, exists := n.turns[id]; exists {
			select {
			case turn <- struct{}{}:
			default: // it will ask anyway
			}
		}
		n.mutex.Unlock()
	}
}

func (n *notified) lock(_ int, key string) lock { return n.acquiring(key) }

func (n *notified) slots(_ int, key string, permits int) lock {
	return n.acquiring(key, "LIMIT", permits)
}

func (n *notified) acquiring(key string, kind ...any) lock {
	return func() (held, error) {
		id, turn := nextID(), make(chan struct{}, 1)
		n.mutex.Lock()
		n.turns[id] = turn
		n.mutex.Unlock()
		defer func() {
			n.mutex.Lock()
			delete(n.turns, id)
			n.mutex.Unlock()
		}()
		words := append([]any{"LOCK.ACQUIRE", key, "PX", lease.Milliseconds(), "WAIT", wait.Milliseconds(),
			"ID", id, "NOTIFY", n.channel}, kind...)
		for {
			reply, err := n.client.Do(background, words...).Result()
			if err != nil {
				return nil, err
			}
			if token, isToken := reply.(int64); isToken {
				return granted{n.client, key, token}, nil
			}
			select {
			case <-turn:
			case <-time.After(5 * time.Second): // a message can be lost
			}
		}
	}
}

// setAndDel is the least that a lock in Redis can cost a client: two commands, for a free lock. It is not safe, because
// DEL deletes any holder's lock.
type setAndDel struct{ client *redis.Client }

func (s setAndDel) lock(_ int, key string) lock {
	return func() (held, error) {
		secret := strconv.FormatInt(nextID(), 10)
		isGranted, err := s.client.SetNX(background, key, secret, lease).Result()
		if err == nil && !isGranted {
			err = errors.New("not granted")
		}
		return deleted{s.client, key}, err
	}
}

type deleted struct {
	client *redis.Client
	key    string
}

func (d deleted) Release() error { return d.client.Del(background, d.key).Err() }
func (deleted) Token() int64     { return 0 }

type redsyncLocks struct{ locks *redsync.Redsync }

func (r redsyncLocks) lock(_ int, key string) lock {
	return func() (held, error) {
		// The delay between tries is 50 to 250 ms by default.
		mutex := r.locks.NewMutex(key, redsync.WithExpiry(lease), redsync.WithTries(int(wait/(50*time.Millisecond))))
		return redsyncHeld{mutex}, mutex.Lock()
	}
}

type redsyncHeld struct{ mutex *redsync.Mutex }

func (h redsyncHeld) Release() error {
	_, err := h.mutex.Unlock()
	return err
}
func (redsyncHeld) Token() int64 { return 0 }

type redislocks struct{ locker *redislock.Client }

func (r redislocks) lock(_ int, key string) lock {
	return func() (held, error) {
		// The README retries every 100 ms.
		options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
		within, cancel := context.WithTimeout(background, wait)
		defer cancel()
		got, err := r.locker.Obtain(within, key, lease, options)
		return redislockHeld{got}, err
	}
}

type redislockHeld struct{ lock *redislock.Lock }

func (h redislockHeld) Release() error { return h.lock.Release(background) }
func (redislockHeld) Token() int64     { return 0 }
