// Package goredis adapts go-redis clients to serverlock: Client (with Sentinel too) and ClusterClient.
//
//	locks := serverlock.New(goredis.New(redis.NewClient(&redis.Options{Addr: "localhost:6379"})))
package goredis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/redis/go-redis/v9"

	"example.com/serverlock/driver"
)

// New adapts a client of one server: redis.NewClient, or redis.NewFailoverClient with Sentinel.
func New(client *redis.Client) driver.Client { return newNode(client) }

// NewCluster adapts a cluster client.
func NewCluster(client *redis.ClusterClient) driver.Client {
	return &cluster{client: client, nodes: map[*redis.Client]*node{}}
}

// node is one server. Its client shares the pool of the application's client.
type node struct {
	client *redis.Client
}

func newNode(client *redis.Client) *node {
	// A copy with its own options: no retries, which could send a call twice, and deadlines from the context.
	own := client.WithTimeout(client.Options().ReadTimeout)
	options := own.Options()
	options.ReadTimeout, options.WriteTimeout = 0, 0
	options.MaxRetries = 0
	options.ContextTimeoutEnabled = true
	return &node{client: own}
}

func (n *node) Node(context.Context, string) (driver.Node, error) { return n, nil }

func (n *node) Exchange(ctx context.Context, calls []*driver.Call) {
	if len(calls) == 1 {
		cmd := redis.NewCmd(ctx, calls[0].Words...)
		_ = n.client.Process(ctx, cmd)
		calls[0].Value, calls[0].Err = result(cmd)
		return
	}
	pipe := n.client.Pipeline()
	cmds := make([]*redis.Cmd, len(calls))
	for at, call := range calls {
		cmds[at] = pipe.Do(ctx, call.Words...)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for at, call := range calls {
		call.Value, call.Err = result(cmds[at])
	}
}

func result(cmd *redis.Cmd) (any, error) {
	value, err := cmd.Result()
	if err == nil || errors.Is(err, redis.Nil) {
		return value, nil
	}
	return nil, read(err)
}

// read returns an error reply as a ReplyError, even if it replied to a handshake command.
func read(err error) error {
	var reply redis.Error
	if errors.As(err, &reply) {
		return driver.ReplyError(reply.Error())
	}
	return err
}

type cluster struct {
	client *redis.ClusterClient
	mu     sync.Mutex
	nodes  map[*redis.Client]*node
}

func (c *cluster) Node(ctx context.Context, key string) (driver.Node, error) {
	master, err := c.client.MasterForKey(ctx, key)
	if err != nil {
		return nil, read(err)
	}
	return c.node(master), nil
}

func (c *cluster) NodeAt(ctx context.Context, address string) (driver.Node, error) {
	var mu sync.Mutex
	var found *redis.Client
	err := c.client.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		if master.Options().Addr == address {
			mu.Lock()
			defer mu.Unlock()
			found = master
		}
		return nil
	})
	if found == nil {
		return nil, fmt.Errorf("no master at %s: %w", address, err)
	}
	return c.node(found), nil
}

// Refresh reloads the slot map, which ForEachMaster does first. Nodes for servers that have left are dropped.
func (c *cluster) Refresh(ctx context.Context) error {
	var mu sync.Mutex
	seen := map[*redis.Client]bool{}
	err := c.client.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		seen[master] = true
		return nil
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.nodes, func(client *redis.Client, _ *node) bool { return !seen[client] })
	return nil
}

func (c *cluster) node(client *redis.Client) *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.nodes[client]
	if found == nil {
		found = newNode(client)
		c.nodes[client] = found
	}
	return found
}
