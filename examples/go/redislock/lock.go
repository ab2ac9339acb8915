// Package redislock is a lock of redis-lock for redigo.
//
//	options := redislock.Options{Lease: 30 * time.Second, Wait: time.Minute}
//	lock, ctx, err := redislock.Acquire(ctx, dial, "report", options)
//	if err != nil {
//		return err // errors.Is(err, redislock.ErrRefused): somebody else has it
//	}
//	defer lock.Release()
//	write(ctx, lock.Token()) // give the fencing token to the storage that is written to
//	return lock.Release()    // tells whether the lock was held until now
//
// It has a connection of its own. It waits in pieces shorter than its time-out, under one random ID: neither a lost
// reply nor a time-out loses the place in line or leaves a lock behind; a wait whose context ends leaves the line. A
// goroutine renews the lease at a third of it. Where that fails, the lock is lost at nine tenths of the lease, counted
// from when the last renewal was sent: the context of the work is cancelled, and Err and Release tell why.
package redislock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Dial makes a new connection, outside any pool, to who is the master now. It heeds its context.
type Dial func(context.Context) (redis.Conn, error)

// Options tell how a lock is wanted.
type Options struct {
	Lease    time.Duration // for how long a grant is good if it is not renewed; 30 s if zero
	Wait     time.Duration // how long to stand in line
	Timeout  time.Duration // how long the server may take to answer; 5 s if zero
	Owner    string        // a label for people
	Session  bool          // the lock ends with its connection
	Fallback bool          // a server without the module gets SET NX PX: no order among those who wait, and no token
	Warn     func(string)  // told when the fallback is used; log.Print if nil
}

// Lock is a lock that is held.
type Lock struct {
	line          *line
	cancel        context.CancelFunc
	stop, stopped chan struct{} // the renewal is to stop; has stopped
	once          sync.Once
	released      error

	mu    sync.Mutex
	until time.Time
	lost  error
}

// Acquire takes the lock. The context that it returns ends with the lock, and with ctx: it is for the work.
func Acquire(ctx context.Context, dial Dial, key string, options Options) (*Lock, context.Context, error) {
	line := newLine(dial, key, options)
	until, err := line.wait(ctx)
	if err != nil {
		line.close()
		if !errors.Is(err, ErrRefused) && !errors.Is(err, ErrUnsupported) {
			// It may stand in line, or have been granted. If this fails, its lease ends it.
			_, _ = line.exchange(context.Background(), "CANCEL", 0)
			line.close()
		}
		return nil, ctx, err
	}
	work, cancel := context.WithCancel(ctx)
	lock := &Lock{line: line, cancel: cancel, until: until, stop: make(chan struct{}), stopped: make(chan struct{})}
	go lock.renew()
	return lock, work, nil
}

// Token is the fencing token; zero under the fallback, which has none.
func (l *Lock) Token() int64 { return l.line.token }

// Left is how much of the lease is left, by the clock of this side.
func (l *Lock) Left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Until(l.until)
}

// Err is nil while the lock is held for certain; else it tells how it was lost.
func (l *Lock) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil && time.Until(l.until) <= 0 {
		return l.line.lost("its lease is over", nil)
	}
	return l.lost
}

// Release cancels the context of the work and gives the lock back. The error is ErrLost if it was not held until now.
// Called again, it says the same.
func (l *Lock) Release() error {
	l.once.Do(func() {
		l.cancel()
		close(l.stop)
		<-l.stopped
		l.released = l.giveBack()
		l.line.close()
	})
	return l.released
}

func (l *Lock) giveBack() error {
	end, resent := time.Now().Add(l.line.options.Timeout), false
	for {
		reply, err := l.line.exchange(context.Background(), "RELEASE", 0)
		switch {
		case l.lost != nil:
			return l.lost
		case err == nil && (reply == 1 || reply == 0 && resent && l.Left() > 0):
			return nil // sent again, it finds the lock released already: 0
		case err == nil:
			return l.line.lost("it was over before it was released", nil)
		case !mayPass(err) || resent && time.Now().After(end):
			return err
		}
		resent = true
		time.Sleep(50 * time.Millisecond)
	}
}

func (l *Lock) renew() {
	defer close(l.stopped)
	lease, giveUp := l.line.options.Lease, l.until.Add(-l.line.options.Lease/10)
	pause, cause := lease/3, error(nil)
	for {
		select {
		case <-l.stop:
			return
		case <-time.After(pause):
		}
		sent := time.Now()
		if !sent.Before(giveUp) {
			l.lose("its lease was not renewed", cause)
			return
		}
		ctx, cancel := context.WithDeadline(context.Background(), giveUp)
		reply, err := l.line.exchange(ctx, "EXTEND", 0)
		cancel()
		switch {
		case err == nil && reply == 1:
			l.mu.Lock()
			l.until = sent.Add(lease)
			l.mu.Unlock()
			giveUp, pause, cause = sent.Add(lease-lease/10), lease/3, nil
		case err == nil:
			l.lose("it was taken away", nil)
			return
		case l.line.options.Session && isBroken(err):
			l.lose("its session has ended", err)
			return
		default:
			pause, cause = shorter(lease/20, time.Until(giveUp)), err
		}
	}
}

func (l *Lock) lose(why string, cause error) {
	l.mu.Lock()
	l.lost = l.line.lost(why, cause)
	l.mu.Unlock()
	l.cancel()
}
