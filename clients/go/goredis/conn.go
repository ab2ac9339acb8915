package goredis

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
	"github.com/redis/go-redis/v9/maintnotifications"

	"example.com/serverlock/driver"
	"example.com/serverlock/internal/resp"
)

const writeTimeout = 10 * time.Second

// conn is a connection that go-redis has dialed and authenticated, and no longer uses. It is read here, because
// go-redis reads only while waiting for a reply, so go-redis would not notice that the connection was closed.
type conn struct {
	net.Conn
	client *redis.Client
	reader *resp.Reader
}

func (n *node) Dial(ctx context.Context) (driver.Conn, error) {
	options := *n.client.Options()
	// The library writes to the original while opening its first connections. Push messages are not understood here.
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	dialed := dialer{dial: options.Dialer}
	options.Dialer = dialed.keep
	options.Protocol = 2
	options.PoolSize, options.MinIdleConns, options.MaxIdleConns, options.MaxActiveConns = 1, 0, 0, 0
	options.ConnMaxIdleTime, options.ConnMaxLifetime = -1, 0
	options.MaxRetries, options.DialerRetries = -1, 1
	options.ContextTimeoutEnabled = true
	options.ReadTimeout, options.WriteTimeout = -1, -1 // the context decides
	options.Limiter = nil
	if provider := options.StreamingCredentialsProvider; provider != nil {
		// The library would re-authenticate the connection while it is in use here.
		options.StreamingCredentialsProvider = nil
		options.CredentialsProviderContext = func(context.Context) (string, string, error) { return credentials(provider) }
	}
	client := redis.NewClient(&options)
	err := client.Ping(ctx).Err()
	netConn := dialed.conn()
	if err == nil && netConn == nil {
		err = errors.New("go-redis did not dial")
	}
	if err == nil {
		err = netConn.SetDeadline(time.Time{})
	}
	if err != nil {
		if netConn != nil {
			_ = netConn.Close()
		}
		_ = client.Close()
		return nil, read(err)
	}
	return &conn{Conn: netConn, client: client, reader: resp.NewReader(netConn)}, nil
}

func (c *conn) Send(words []any) error {
	packed, err := resp.Pack(words)
	if err != nil {
		return err
	}
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	_, err = c.Write(packed)
	return err
}

func (c *conn) Receive() (any, error) { return c.reader.Read() }

func (c *conn) Close() error {
	err := c.Conn.Close()
	_ = c.client.Close()
	return err
}

// dialer keeps the connection that the library dials for the handshake. The library closes any later one with its
// client.
type dialer struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	mu   sync.Mutex
	kept net.Conn
}

func (d *dialer) keep(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.dial(ctx, network, address)
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.kept = conn
	}
	return conn, err
}

func (d *dialer) conn() net.Conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.kept
}

func credentials(provider auth.StreamingCredentialsProvider) (user, password string, err error) {
	found, unsubscribe, err := provider.Subscribe(listener{})
	if err != nil {
		return "", "", err
	}
	_ = unsubscribe()
	user, password = found.BasicAuth()
	return user, password, nil
}

// listener ignores changes to the credentials.
type listener struct{}

func (listener) OnNext(auth.Credentials) {}
func (listener) OnError(error)           {}
