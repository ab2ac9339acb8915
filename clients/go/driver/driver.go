// Package driver is the interface between serverlock and a client library. The packages goredis and redigo implement
// it; applications do not use it.
package driver

import "context"

// Client is the application's own client.
type Client interface {
	// Node returns the server that has the key. The value is comparable, and equal for the same server.
	Node(ctx context.Context, key string) (Node, error)
}

// Cluster is a client of several servers.
type Cluster interface {
	Client
	// NodeAt returns the server at an address, as MOVED and ASK name it.
	NodeAt(ctx context.Context, address string) (Node, error)
	// Refresh reloads the map from slots to servers.
	Refresh(ctx context.Context) error
}

// Node is one server, behind the application's connection pool.
type Node interface {
	// Exchange sends the calls over one connection from the pool, in one write, and fills in their replies. It sends
	// each call at most once. It returns by the deadline of ctx, which always has one, and closes the connection if a
	// reply is still missing then.
	Exchange(ctx context.Context, calls []*Call)
	// Dial opens a connection outside the pool, with the pool's password, database and TLS settings, and RESP2.
	Dial(ctx context.Context) (Conn, error)
}

// Call is one command and its reply.
type Call struct {
	// Words are the command and its arguments: string, []byte or int64; a fenced command has the types that the user
	// passed.
	Words []any
	// Value is the reply: nil, int64, string, []byte, []any, or a map if the library returns one.
	Value any
	// Err is a [ReplyError] if that was the reply; any other error means that there was no reply.
	Err error
}

// ReplyError is an error reply, including its error code.
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// Conn is a dedicated connection. One goroutine reads and one writes; Close may be called at any time.
type Conn interface {
	// Send writes one command.
	Send(words []any) error
	// Receive blocks until the next reply or message.
	Receive() (any, error)
	Close() error
}
