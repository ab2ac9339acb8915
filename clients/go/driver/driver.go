// Package driver says what serverlock needs of a client library. The packages goredis and redigo provide it; users have
// no use for this one.
package driver

import "context"

// Client is the application's own client.
type Client interface {
	// Node gives the server that has the key. The value is the same for the same server, and comparable.
	Node(ctx context.Context, key string) (Node, error)
}

// Cluster is a client that knows several servers.
type Cluster interface {
	Client
	// NodeAt gives the server at an address, as MOVED and ASK name it.
	NodeAt(ctx context.Context, address string) (Node, error)
	// Refresh finds out anew which server has which keys.
	Refresh(ctx context.Context) error
}

// Node is one server, behind the application's pool of connections.
type Node interface {
	// Exchange sends the calls over one connection of the pool, in one write, and fills in what becomes of them. It sends
	// each call at most once. It ends with the deadline of ctx, which it always has, and closes the connection if a
	// reply is still to come then.
	Exchange(ctx context.Context, calls []*Call)
	// Dial opens a connection outside of the pool, with the password, database and TLS of the others, and RESP2.
	Dial(ctx context.Context) (Conn, error)
}

// Call is one command and its reply.
type Call struct {
	// Words are the command and its arguments: string, []byte or int64; those of a fenced command are what users pass.
	Words []any
	// Value is the reply: nil, int64, string, []byte, []any, or a map where the library makes one.
	Value any
	// Err is a [ReplyError] if that was the reply; any other error says that there was none.
	Err error
}

// ReplyError is an error that the server replied, with its code word.
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// Conn is a connection of the manager's own. One goroutine reads and one writes; anybody may close it at any time.
type Conn interface {
	// Send writes one command.
	Send(words []any) error
	// Receive gives the next reply or message, and waits for it as long as it takes.
	Receive() (any, error)
	Close() error
}
