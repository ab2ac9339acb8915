package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	redigolib "github.com/gomodule/redigo/redis"
	goredislib "github.com/redis/go-redis/v9"

	"example.com/serverlock"
	"example.com/serverlock/driver"
	"example.com/serverlock/goredis"
	"example.com/serverlock/redigo"
)

// client is the application's own client.
type client struct {
	driver driver.Client
	do     func(ctx context.Context, words []any) (any, error)
}

type library struct {
	path string
	can  []string
	open func(o *order) (client, error)
}

var libraries = map[string]library{
	"go-redis": {"github.com/redis/go-redis/v9", []string{"sentinel", "cluster"}, openGoRedis},
	// The application's dial function may ask Sentinels.
	"redigo": {"github.com/gomodule/redigo", []string{"sentinel"}, openRedigo},
}

func ms(span time.Duration) float64 { return float64(span) / float64(time.Millisecond) }

func isLost(err error) bool { return errors.Is(err, serverlock.ErrLost) }

// plain converts bytes to a string, for JSON.
func plain(reply any) any {
	if bytes, isBytes := reply.([]byte); isBytes {
		return string(bytes)
	}
	return reply
}

func addresses(pairs [][2]any) []string {
	var list []string
	for _, pair := range pairs {
		list = append(list, fmt.Sprintf("%v:%v", pair[0], pair[1]))
	}
	return list
}

func (p *place) secure() (*tls.Config, error) {
	if p.TLS == nil {
		return nil, nil
	}
	pem, err := os.ReadFile(p.TLS.CA)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return &tls.Config{RootCAs: roots, ServerName: p.Host}, nil
}

func openGoRedis(o *order) (client, error) {
	at := &o.At
	secure, err := at.secure()
	if err != nil {
		return client{}, err
	}
	switch at.Kind {
	case "cluster":
		cluster := goredislib.NewClusterClient(&goredislib.ClusterOptions{
			Addrs: addresses(at.Nodes), Username: at.User, Password: at.Password, Protocol: o.Protocol,
		})
		return client{goredis.NewCluster(cluster), func(ctx context.Context, words []any) (any, error) {
			return cluster.Do(ctx, words...).Result()
		}}, nil
	case "sentinel":
		return ofGoRedis(goredislib.NewFailoverClient(&goredislib.FailoverOptions{
			MasterName: at.Master, SentinelAddrs: addresses(at.Sentinels), Username: at.User, Password: at.Password,
			Protocol: o.Protocol,
		})), nil
	}
	options := &goredislib.Options{
		Addr: fmt.Sprintf("%s:%s", at.Host, at.Port), Username: at.User, Password: at.Password, Protocol: o.Protocol,
		TLSConfig: secure,
	}
	if at.Kind == "unix" {
		options.Network, options.Addr = "unix", at.Path
	}
	return ofGoRedis(goredislib.NewClient(options)), nil
}

func ofGoRedis(c *goredislib.Client) client {
	return client{goredis.New(c), func(ctx context.Context, words []any) (any, error) {
		return c.Do(ctx, words...).Result()
	}}
}

func openRedigo(o *order) (client, error) {
	at := &o.At
	secure, err := at.secure()
	if err != nil {
		return client{}, err
	}
	options := []redigolib.DialOption{redigolib.DialUsername(at.User), redigolib.DialPassword(at.Password)}
	if secure != nil {
		options = append(options, redigolib.DialUseTLS(true), redigolib.DialTLSConfig(secure))
	}
	network, address := "tcp", fmt.Sprintf("%s:%s", at.Host, at.Port)
	if at.Kind == "unix" {
		network, address = "unix", at.Path
	}
	pool := &redigolib.Pool{MaxIdle: 10}
	if at.Kind == "sentinel" {
		pool.Dial = func() (redigolib.Conn, error) { return dialMaster(at, options) }
	} else {
		pool.DialContext = func(ctx context.Context) (redigolib.Conn, error) {
			return redigolib.DialContext(ctx, network, address, options...)
		}
	}
	return client{redigo.New(pool), func(ctx context.Context, words []any) (any, error) {
		conn := pool.Get()
		defer conn.Close()
		return redigolib.DoContext(conn, ctx, words[0].(string), words[1:]...)
	}}, nil
}

// dialMaster asks the Sentinels for the master.
func dialMaster(at *place, options []redigolib.DialOption) (redigolib.Conn, error) {
	limits := []redigolib.DialOption{
		redigolib.DialConnectTimeout(time.Second), redigolib.DialReadTimeout(time.Second),
	}
	var last error
	for _, address := range addresses(at.Sentinels) {
		sentinel, err := redigolib.Dial("tcp", address, limits...)
		if err != nil {
			last = err
			continue
		}
		pair, err := redigolib.Strings(sentinel.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", at.Master))
		_ = sentinel.Close()
		if err != nil || len(pair) != 2 {
			last = errors.Join(err, fmt.Errorf("%s knows no master", address))
			continue
		}
		return redigolib.Dial("tcp", pair[0]+":"+pair[1], options...)
	}
	return nil, last
}
