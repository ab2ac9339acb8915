package main

import (
	"hash/fnv"
	"sync"

	"github.com/jackc/pgx/v5"
)

// postgres gives each client a connection of its own, because locks belong to a session or a transaction.
type postgres struct {
	conns perClient[*reconnecting]
	kind  func(conn *reconnecting, key string) lock
}

func newPostgres(kind func(*reconnecting, string) lock) func(ports []string) (contender, error) {
	return func(ports []string) (contender, error) {
		made := &postgres{kind: kind}
		made.conns.create = func() (*reconnecting, error) {
			conn := &reconnecting{address: "postgres://postgres@127.0.0.1:" + ports[0] + "/postgres?sslmode=disable"}
			return conn, conn.check()
		}
		return made, nil
	}
}

func (p *postgres) lock(client int, key string) lock { return p.kind(p.conns.of(client), key) }

// shared is an advisory lock.
func (p *postgres) shared(client int, key string) lock {
	return advisoryOf(p.conns.of(client), key, "_shared")
}

// reconnecting is a connection that is opened again after an error.
type reconnecting struct {
	address string
	*pgx.Conn
}

func (r *reconnecting) check() (err error) {
	if r.Conn == nil || r.IsClosed() {
		r.Conn, err = pgx.Connect(background, r.address)
	}
	return err
}

type pgHeld func() error

func (h pgHeld) Release() error { return h() }
func (pgHeld) Token() int64     { return 0 }

func advisory(conn *reconnecting, key string) lock { return advisoryOf(conn, key, "") }

// advisoryOf takes an advisory lock of this mode.
func advisoryOf(conn *reconnecting, key, mode string) lock {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(key)) // never fails
	id := int64(hash.Sum64())
	return func() (held, error) {
		if err := conn.check(); err != nil {
			return nil, err
		}
		_, err := conn.Exec(background, "select pg_advisory_lock"+mode+"($1)", id)
		return pgHeld(func() error {
			_, err := conn.Exec(background, "select pg_advisory_unlock"+mode+"($1)", id)
			return err
		}), err
	}
}

var tables sync.Mutex

// forUpdate locks a row, which exists before, until the end of the transaction.
func forUpdate(conn *reconnecting, key string) lock {
	tables.Lock()
	defer tables.Unlock()
	_, err := conn.Exec(background, "create table if not exists locks (key text primary key)")
	must(err)
	_, err = conn.Exec(background, "insert into locks values ($1) on conflict do nothing", key)
	must(err)
	return func() (held, error) {
		if err := conn.check(); err != nil {
			return nil, err
		}
		transaction, err := conn.Begin(background)
		if err != nil {
			return nil, err
		}
		_, err = transaction.Exec(background, "select key from locks where key = $1 for update", key)
		return pgHeld(func() error { return transaction.Commit(background) }), err
	}
}
