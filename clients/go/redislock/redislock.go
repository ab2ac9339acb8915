// Package redislock provides the interface of github.com/bsm/redislock on top of LOCK.*: callers that retry wait in the
// queue, and the token is a fencing token. Only the import and the client change:
//
//	locks := serverlock.New(goredis.New(client))
//	lock, err := redislock.Obtain(ctx, locks, "report", 30*time.Second, nil) // was: redislock.Obtain(ctx, client, ...)
//
// As with redislock, a lock is not renewed: it expires unless [Lock.Refresh] is called. [Options] refuses a Token,
// because the server generates it.
package redislock

import (
	"context"
	"errors"
	"strconv"
	"time"

	"example.com/serverlock"
	"example.com/serverlock/internal/adapter"
)

var (
	// ErrNotObtained means that somebody else has the lock, or that the lock to refresh is no longer held.
	ErrNotObtained = errors.New("redislock: not obtained")

	// ErrLockNotHeld means that the lock to release is no longer held.
	ErrLockNotHeld = errors.New("redislock: lock not held")
)

// Client obtains locks.
type Client struct {
	locks *serverlock.Locks
}

// New returns a Client that uses one client's locks.
func New(locks *serverlock.Locks) *Client { return &Client{locks: locks} }

// Obtain is a short-cut for New(...).Obtain(...).
func Obtain(ctx context.Context, locks *serverlock.Locks, key string, ttl time.Duration, opt *Options) (*Lock, error) {
	return New(locks).Obtain(ctx, key, ttl, opt)
}

// Obtain acquires the lock, and waits in the queue for as long as the retry strategy would keep trying. The error is
// [ErrNotObtained], that of the context, or package serverlock's. As with redislock, a context without a deadline ends
// the attempt after ttl.
func (c *Client) Obtain(ctx context.Context, key string, ttl time.Duration, opt *Options) (*Lock, error) {
	if opt == nil {
		opt = &Options{}
	}
	if opt.Token != "" {
		return nil, refused(key, "the token cannot be chosen: the server generates it")
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, ttl)
		defer cancel()
	}
	label := serverlock.NoOwner()
	if isLabel(opt.Metadata) {
		label = serverlock.Owner(opt.Metadata)
	}
	wait := serverlock.Wait(waitOf(ctx, opt.RetryStrategy))
	held, err := c.locks.Lock(key, ttl, adapter.Timed().(serverlock.Option), label, wait).Acquire(ctx)
	switch {
	case err == nil:
		return &Lock{held: held, key: key, metadata: opt.Metadata}, nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return nil, ctx.Err()
	case isTaken(err):
		return nil, ErrNotObtained
	}
	return nil, err
}

// isTaken is false if the server kept refusing for another reason.
func isTaken(err error) bool {
	var ours *serverlock.Error
	return errors.Is(err, serverlock.ErrRefused) && errors.As(err, &ours) && ours.Cause == nil
}

// isLabel reports whether a holder's owner may be this text.
func isLabel(text string) bool {
	for _, letter := range []byte(text) {
		if letter <= ' ' || letter > '~' {
			return false
		}
	}
	return 0 < len(text) && len(text) <= 128
}

func refused(key, reason string) error {
	return &serverlock.Error{Key: strconv.Quote(key), Kind: serverlock.ErrArgument, Reason: reason}
}

// Lock represents an obtained lock.
type Lock struct {
	held     *serverlock.Held
	key      string
	metadata string
}

// Key returns the key of the lock.
func (l *Lock) Key() string { return l.key }

// Token returns the fencing token as text.
func (l *Lock) Token() string { return strconv.FormatInt(l.held.Token(), 10) }

// Metadata returns what [Options] set.
func (l *Lock) Metadata() string { return l.metadata }

// TTL asks the server how long the lock is still held. It returns 0 if the lock has expired.
func (l *Lock) TTL(ctx context.Context) (time.Duration, error) {
	left, err := l.held.Verify(ctx)
	if isOver(err) {
		return 0, nil
	}
	return left, err
}

// Refresh sets a new TTL, counted from now. If the lock is no longer held, the error is [ErrNotObtained].
func (l *Lock) Refresh(ctx context.Context, ttl time.Duration, _ *Options) error {
	if ttl < time.Millisecond {
		return refused(l.key, "the TTL is less than a millisecond")
	}
	err := l.held.Extend(ctx, ttl)
	if isOver(err) {
		return ErrNotObtained
	}
	return err
}

// Release releases the lock. If it is no longer held, or l is nil, the error is [ErrLockNotHeld].
func (l *Lock) Release(ctx context.Context) error {
	if l == nil {
		return ErrLockNotHeld
	}
	err := l.held.Release(ctx)
	if isOver(err) {
		return ErrLockNotHeld
	}
	return err
}

func isOver(err error) bool {
	return errors.Is(err, serverlock.ErrLost) || errors.Is(err, serverlock.ErrMisuse)
}
