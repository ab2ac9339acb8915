package serverlock

import (
	"context"
	"strings"
	"sync"
	"time"

	"example.com/serverlock/driver"
)

const mostHops = 5

// router leads calls to the server that has the key, and follows MOVED and ASK.
type router struct {
	client  driver.Client
	cluster driver.Cluster // nil if there is one server
	mu      sync.Mutex
	lanes   map[driver.Node]*lane
}

func newRouter(client driver.Client) *router {
	r := &router{client: client, lanes: map[driver.Node]*lane{}}
	r.cluster, _ = client.(driver.Cluster)
	return r
}

func (r *router) isCluster() bool { return r.cluster != nil }

// call is one exchange. The error is said, broken or abandoned.
func (r *router) call(ctx context.Context, key string, words []any, timeout time.Duration) (any, error) {
	node, err := r.node(ctx, key, timeout)
	isAsking := false
	for hop := 1; ; hop++ {
		if err != nil {
			return nil, read(err)
		}
		call := &driver.Call{Words: words}
		if isAsking {
			err = r.lane(node).do(ctx, timeout, &driver.Call{Words: []any{"ASKING"}}, call)
		} else {
			err = r.lane(node).do(ctx, timeout, call)
		}
		if err == nil {
			err = call.Err
		}
		if err == nil {
			return call.Value, nil
		}
		err = read(err)
		reply, _ := err.(*said)
		if reply == nil || r.cluster == nil || reply.code != "MOVED" && reply.code != "ASK" || hop == mostHops {
			return nil, err
		}
		isAsking = reply.code == "ASK"
		node, err = r.redirected(ctx, key, reply, node, timeout)
	}
}

func (r *router) redirected(
	ctx context.Context, key string, reply *said, from driver.Node, timeout time.Duration,
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
		return nil, reply // to be tried again
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

func (r *router) lane(node driver.Node) *lane {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.lanes[node]
	if found == nil {
		found = &lane{node: node}
		r.lanes[node] = found
	}
	return found
}

// narrow and widen are about the one server; a cluster cannot be narrowed.
func (r *router) narrow(crowded func()) bool {
	if r.cluster != nil {
		return false
	}
	node, err := r.client.Node(context.Background(), "")
	return err == nil && r.lane(node).narrow(crowded)
}

func (r *router) widen() {
	if node, err := r.client.Node(context.Background(), ""); err == nil {
		r.lane(node).widen()
	}
}

// refresh finds out anew which server has which keys. Servers that are gone leave no lanes behind.
func (r *router) refresh(ctx context.Context) error {
	if r.cluster == nil {
		return nil
	}
	r.mu.Lock()
	if len(r.lanes) > 1000 {
		clear(r.lanes)
	}
	r.mu.Unlock()
	return r.cluster.Refresh(ctx)
}

// dial opens a line to the server that has the key. The error is said or broken.
func (r *router) dial(ctx context.Context, key string, timeout time.Duration) (*line, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	node, err := r.client.Node(ctx, key)
	if err != nil {
		return nil, read(err)
	}
	conn, err := node.Dial(ctx)
	if err != nil {
		return nil, read(err)
	}
	return newLine(conn), nil
}
