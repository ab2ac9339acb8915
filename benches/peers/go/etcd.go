package main

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// etcdLocks gives each client a session of its own, over one connection.
type etcdLocks struct {
	sessions perClient[*concurrency.Session]
}

func newEtcd(ports []string) (contender, error) {
	var endpoints []string
	for _, port := range ports {
		endpoints = append(endpoints, "127.0.0.1:"+port)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, DialTimeout: time.Minute, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, err
	}
	made := &etcdLocks{}
	made.sessions.create = func() (*concurrency.Session, error) {
		return concurrency.NewSession(client, concurrency.WithTTL(int(lease/time.Second)))
	}
	return made, nil
}

func (e *etcdLocks) lock(client int, key string) lock {
	mutex := concurrency.NewMutex(e.sessions.of(client), "/"+key)
	return func() (held, error) {
		select {
		case <-e.sessions.of(client).Done(): // it expired while the server was away
			e.sessions.forget(client)
			mutex = concurrency.NewMutex(e.sessions.of(client), "/"+key)
		default:
		}
		within, cancel := context.WithTimeout(background, wait)
		defer cancel()
		return etcdHeld{mutex}, mutex.Lock(within)
	}
}

type etcdHeld struct{ mutex *concurrency.Mutex }

func (h etcdHeld) Release() error { return h.mutex.Unlock(background) }

// Token is the store's revision, which increases with each grant.
func (h etcdHeld) Token() int64 { return h.mutex.Header().Revision }
