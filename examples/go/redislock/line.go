package redislock

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

const (
	setOurs    = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end "
	extendOurs = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end "
	deleteOurs = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
)

// What stands for LOCK.* under the fallback.
var scripts = map[string]string{
	"ACQUIRE": setOurs + extendOurs, "EXTEND": extendOurs + "return 0", "RELEASE": deleteOurs, "CANCEL": deleteOurs,
}

// line is one attempt at a lock, and its connection. The ID is chosen once, and sent with each command of the attempt.
type line struct {
	dial    Dial
	key, id string
	options Options
	token   int64
	isPlain bool // the fallback is in use
	conn    redis.Conn
}

func newLine(dial Dial, key string, options Options) *line {
	if options.Lease == 0 {
		options.Lease = 30 * time.Second
	}
	if options.Timeout == 0 {
		options.Timeout = 5 * time.Second
	}
	if options.Warn == nil {
		options.Warn = func(warning string) { log.Print(warning) }
	}
	options.Timeout = shorter(options.Timeout, options.Lease/4) // a renewal can fail and the next still be in time
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		panic(err) // the system has no random numbers
	}
	id := fmt.Sprint(binary.BigEndian.Uint64(random[:]) >> 1)
	return &line{dial: dial, key: key, id: id, options: options}
}

// exchange sends LOCK.<name>, or the script that stands for it: the reply, zero for nil. After an error of the
// connection the next one connects anew, perhaps to a new master.
func (l *line) exchange(ctx context.Context, name string, piece time.Duration) (int64, error) {
	reply, err := l.ask(ctx, l.command(name, piece))
	var answer redis.Error
	if errors.As(err, &answer) && !l.isPlain && strings.Contains(err.Error(), "unknown command") {
		if name != "ACQUIRE" || !l.options.Fallback {
			return 0, fmt.Errorf("%w: the lock %q: %v", ErrUnsupported, l.key, err)
		}
		l.options.Warn(fmt.Sprintf("the lock %q is held by SET NX PX, without order and token: %v", l.key, err))
		l.isPlain = true
		return l.exchange(ctx, name, piece)
	}
	number, isNumber := reply.(int64)
	switch {
	case err != nil:
	case name == "ACQUIRE" && (reply == nil || isNumber && number > 0):
		if !l.isPlain {
			l.token = number
		}
	case name == "ACQUIRE" || !isNumber || number < -1 || number > 1:
		err = fmt.Errorf("%w: LOCK.%s of the lock %q was answered %v", ErrReply, name, l.key, reply)
	}
	if err != nil && isBroken(err) {
		l.close()
	}
	return number, err
}

func (l *line) command(name string, piece time.Duration) redis.Args {
	lease := l.options.Lease.Milliseconds()
	if l.isPlain { // letters in the value: to the module this is no timestamp, so never expired
		return redis.Args{"EVAL", scripts[name], 1, l.key, "id:" + l.id, lease}
	}
	words := redis.Args{"LOCK." + name, l.key}
	switch name {
	case "CANCEL":
		return words.Add(l.id)
	case "RELEASE":
		return words.Add(l.token)
	case "EXTEND":
		return words.Add(l.token, "PX", lease)
	}
	words = words.Add("PX", lease, "WAIT", piece.Milliseconds(), "ID", l.id)
	if l.options.Owner != "" {
		words = words.Add("OWNER", l.options.Owner)
	}
	if l.options.Session {
		words = words.Add("SESSION")
	}
	return words
}

// ask takes no longer than the time-out in all, connecting included, and ends with its context.
func (l *line) ask(ctx context.Context, words redis.Args) (interface{}, error) {
	ctx, cancel := context.WithTimeout(ctx, l.options.Timeout)
	defer cancel()
	if l.conn == nil {
		conn, err := l.dial(ctx)
		if err != nil {
			return nil, err
		}
		l.conn = conn
	}
	done, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-ctx.Done():
			l.conn.Close() // redigo knows no context; this ends the call
		case <-done:
		}
	}()
	reply, err := redis.DoWithTimeout(l.conn, 0, words[0].(string), words[1:]...)
	close(done)
	<-watched
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("no reply to %v: %w", words[0], ctx.Err())
	}
	return reply, err
}

func (l *line) close() {
	if l.conn != nil {
		l.conn.Close()
		l.conn = nil
	}
}

func shorter(one, other time.Duration) time.Duration {
	if one < other {
		return one
	}
	return other
}
