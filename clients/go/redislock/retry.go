package redislock

import (
	"context"
	"math"
	"sync/atomic"
	"time"
)

// Options describe a lock.
type Options struct {
	// RetryStrategy determines how long [Client.Obtain] waits in the queue. By default, it does not wait.
	RetryStrategy RetryStrategy

	// Metadata is kept in the [Lock]. If it has 1 to 128 visible ASCII characters, it is also the owner that LOCK.INFO
	// shows.
	Metadata string

	// Token must be empty: the server generates it.
	Token string
}

// RetryStrategy says how long redislock would wait between tries. [Client.Obtain] asks for all backoffs first, and
// waits in the queue for their sum.
type RetryStrategy interface {
	// NextBackoff returns the next backoff. One below 1 ends the attempt.
	NextBackoff() time.Duration
}

// Strategies with more tries than this are assumed to try until the context's deadline.
const mostTries = 1_000_000

// waitOf returns how long redislock would keep trying. If that is beyond the deadline, the context ends the wait.
func waitOf(ctx context.Context, retry RetryStrategy) time.Duration {
	if retry == nil {
		return 0
	}
	deadline, _ := ctx.Deadline()
	most := max(0, time.Until(deadline))
	sum := time.Duration(0)
	for range mostTries {
		backoff := retry.NextBackoff()
		if backoff < 1 {
			return sum
		}
		if sum += min(backoff, math.MaxInt64/4); sum > most {
			break
		}
	}
	return most + time.Minute
}

type linearBackoff time.Duration

// LinearBackoff retries after this time, until the context's deadline.
func LinearBackoff(backoff time.Duration) RetryStrategy { return linearBackoff(backoff) }

// NoRetry does not retry.
func NoRetry() RetryStrategy { return linearBackoff(0) }

func (r linearBackoff) NextBackoff() time.Duration { return time.Duration(r) }

type limitedRetry struct {
	strategy RetryStrategy
	left     atomic.Int64
}

// LimitRetry limits a strategy to this many retries, which all attempts with it share.
func LimitRetry(s RetryStrategy, limit int) RetryStrategy {
	r := &limitedRetry{strategy: s}
	r.left.Store(int64(limit))
	return r
}

func (r *limitedRetry) NextBackoff() time.Duration {
	if r.left.Add(-1) < 0 {
		return 0
	}
	return r.strategy.NextBackoff()
}

type exponentialBackoff struct {
	least, most time.Duration
	count       atomic.Uint64
}

// ExponentialBackoff retries after 4 ms, 8 ms and so on, but no earlier than least, and no later than most unless that
// is 0.
func ExponentialBackoff(least, most time.Duration) RetryStrategy {
	return &exponentialBackoff{least: least, most: most}
}

func (r *exponentialBackoff) NextBackoff() time.Duration {
	backoff := 2 * time.Millisecond << min(r.count.Add(1), 25)
	switch {
	case backoff < r.least:
		return r.least
	case r.most != 0 && backoff > r.most:
		return r.most
	}
	return backoff
}
