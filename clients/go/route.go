package serverlock

import (
	"context"
	"strings"
	"sync"
	"time"

	"example.com/serverlock/driver"
	"example.com/serverlock/internal/clock"
)

const maxHops = 5

// router sends calls to the server that has the key, and follows MOVED and ASK.
type router struct {
	client    driver.Client
	cluster   driver.Cluster // nil for a single server
	clock     clock.Clock
	mu        sync.Mutex
	pipelines map[driver.Node]*pipeline
}

func newRouter(client driver.Client, clock clock.Clock) *router {
	r := &router{client: client, clock: clock, pipelines: map[driver.Node]*pipeline{}}
	r.cluster, _ = client.(driver.Cluster)
	return r
}

func (r *router) isCluster() bool { return r.cluster != nil }

// call sends one command. The error is a replyError, connectionLost or abandoned.
func (r *router) call(ctx context.Context, key string, words []any, timeout time.Duration) (any, error) {
	node, err := r.node(ctx, key, timeout)
	isAsking := false
	for hop := 1; ; hop++ {
		if err != nil {
			return nil, read(err)
		}
		call := &driver.Call{Words: words}
		if isAsking {
			err = r.pipeline(node).do(ctx, timeout, &driver.Call{Words: []any{"ASKING"}}, call)
		} else {
			err = r.pipeline(node).do(ctx, timeout, call)
		}
		if err == nil {
			err = call.Err
		}
		if err == nil {
			return call.Value, nil
		}
		err = read(err)
		reply, _ := err.(*replyError)
		if reply == nil || r.cluster == nil || reply.code != "MOVED" && reply.code != "ASK" || hop == maxHops {
			return nil, err
		}
		isAsking = reply.code == "ASK"
		node, err = r.redirected(ctx, key, reply, node, timeout)
	}
}

func (r *router) redirected(
	ctx context.Context, key string, reply *replyError, from driver.Node, timeout time.Duration,
) (driver.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if reply.code == "MOVED" {
		_ = r.refresh(ctx)
		if node, err := r.cluster.Node(ctx, key); err == nil && node != from {
			return node, nil
		}
	}
	words := strings.Fields(reply.text) // MOVED slot address
	if len(words) != 3 {
		return nil, reply
	}
	node, err := r.cluster.NodeAt(ctx, words[2])
	if err != nil {
		return nil, reply // transient, so it is retried
	}
	return node, nil
}

func (r *router) node(ctx context.Context, key string, timeout time.Duration) (driver.Node, error) {
	if r.cluster == nil {
		return r.client.Node(ctx, key)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	return r.client.Node(ctx, key)
}

func (r *router) pipeline(node driver.Node) *pipeline {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.pipelines[node]
	if found == nil {
		found = &pipeline{node: node, clock: r.clock}
		r.pipelines[node] = found
	}
	return found
}

// narrow and widen apply to a single server; a cluster is never narrowed.
func (r *router) narrow(onQueued func()) bool {
	if r.cluster != nil {
		return false
	}
	node, err := r.client.Node(context.Background(), "")
	return err == nil && r.pipeline(node).narrow(onQueued)
}

func (r *router) widen() {
	if node, err := r.client.Node(context.Background(), ""); err == nil {
		r.pipeline(node).widen()
	}
}

// refresh reloads the cluster's slot map. Pipelines to servers that have left are dropped.
func (r *router) refresh(ctx context.Context) error {
	if r.cluster == nil {
		return nil
	}
	r.mu.Lock()
	if len(r.pipelines) > 1000 {
		clear(r.pipelines)
	}
	r.mu.Unlock()
	return r.cluster.Refresh(ctx)
}

// dial opens a connection to the server that has the key. The error is a replyError or connectionLost.
func (r *router) dial(ctx context.Context, key string, timeout time.Duration) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	node, err := r.client.Node(ctx, key)
	if err != nil {
		return nil, read(err)
	}
	return r.dialNode(ctx, node)
}

func (r *router) dialNode(ctx context.Context, node driver.Node) (*connection, error) {
	conn, err := node.Dial(ctx)
	if err != nil {
		return nil, read(err)
	}
	return newConnection(conn, r.clock), nil
}
