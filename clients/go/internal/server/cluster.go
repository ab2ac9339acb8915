package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const slots = 16384

// A Cluster has three masters, each with a third of the slots, and no replicas.
type Cluster struct {
	Addresses []string
	nodes     []*redis.Client
}

// StartCluster starts a cluster for the test.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	ctx := context.Background()
	c := &Cluster{}
	for range 3 {
		words := []string{"--loadmodule", module(t), "--cluster-enabled", "yes", "--cluster-node-timeout", "3000"}
		address := start(t, append(words, "--save", "", "--dir", t.TempDir(), "--bind", "127.0.0.1"), freePortWithBus)
		node := redis.NewClient(&redis.Options{Addr: address})
		t.Cleanup(func() { _ = node.Close() })
		c.Addresses, c.nodes = append(c.Addresses, address), append(c.nodes, node)
	}
	for number, node := range c.nodes {
		must(t, node.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", number+1).Err())
		must(t, node.ClusterAddSlotsRange(ctx, number*slots/3, (number+1)*slots/3-1).Err())
		host, port, _ := net.SplitHostPort(c.Addresses[0])
		if number > 0 {
			must(t, node.ClusterMeet(ctx, host, port).Err())
		}
	}
	for end := time.Now().Add(60 * time.Second); !c.isWhole(ctx); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no cluster within 60 s")
		}
	}
	return c
}

// isWhole reports whether each node knows the owner of each slot.
func (c *Cluster) isWhole(ctx context.Context) bool {
	for _, node := range c.nodes {
		known := 0
		ranges, _ := node.ClusterSlots(ctx).Result()
		for _, one := range ranges {
			known += one.End - one.Start + 1
		}
		if known != slots || !strings.Contains(node.ClusterInfo(ctx).Val(), "cluster_state:ok") {
			return false
		}
	}
	return true
}

// Owner returns the number of the master that has the key.
func (c *Cluster) Owner(t testing.TB, key string) int {
	t.Helper()
	ctx := context.Background()
	slot, err := c.nodes[0].ClusterKeySlot(ctx, key).Result()
	must(t, err)
	ranges, err := c.nodes[0].ClusterSlots(ctx).Result()
	must(t, err)
	for _, one := range ranges {
		if int64(one.Start) <= slot && slot <= int64(one.End) {
			for number, address := range c.Addresses {
				if one.Nodes[0].Addr == address {
					return number
				}
			}
		}
	}
	t.Fatalf("no master has the slot of %s", key)
	return 0
}

// Move moves a key's slot, with all its keys, to another master.
func (c *Cluster) Move(t testing.TB, key string) {
	t.Helper()
	ctx := context.Background()
	from := c.Owner(t, key)
	source, target := c.nodes[from], c.nodes[(from+1)%3]
	slot := c.nodes[0].ClusterKeySlot(ctx, key).Val()
	ids := map[*redis.Client]string{}
	for _, node := range c.nodes {
		ids[node] = node.ClusterMyID(ctx).Val()
	}
	must(t, target.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source]).Err())
	must(t, source.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target]).Err())
	host, port, _ := net.SplitHostPort(target.Options().Addr)
	for _, name := range source.ClusterGetKeysInSlot(ctx, int(slot), 100).Val() {
		must(t, source.Migrate(ctx, host, port, name, 0, 5*time.Second).Err())
	}
	for _, node := range []*redis.Client{target, source, c.nodes[(from+2)%3]} {
		must(t, node.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", ids[target]).Err())
	}
}

// freePortWithBus also checks the cluster bus port, 10,000 higher.
func freePortWithBus(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := 10_000 + rand.IntN(22_000) // below the ephemeral ports
		if isFree(port) && isFree(port+10_000) {
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

func isFree(port int) bool {
	probe, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	return probe.Close() == nil
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
