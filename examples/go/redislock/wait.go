package redislock

import (
	"context"
	"fmt"
	"math/rand"
	"time"
)

// wait returns until when the lock is held.
func (l *line) wait(ctx context.Context) (time.Time, error) {
	end, tried := time.Now().Add(l.options.Wait), false
	for {
		sent := time.Now()
		piece := shorter(end.Sub(sent), l.options.Timeout*3/5)
		if piece < 0 {
			piece = 0
		}
		granted, err := l.exchange(ctx, "ACQUIRE", piece)
		pause := 50 * time.Millisecond
		switch {
		case ctx.Err() != nil:
			return sent, fmt.Errorf("the lock %q: %w", l.key, ctx.Err())
		case err == nil && granted > 0 && time.Since(sent) <= l.options.Lease/3:
			return sent.Add(l.options.Lease), nil
		case err == nil && granted > 0: // the grant may be as old as the call: begin anew
			sent = time.Now()
			if extended, err := l.exchange(ctx, "EXTEND", 0); err != nil {
				return sent, err
			} else if extended != 1 {
				return sent, l.lost("it was over before it could be used", nil)
			}
			return sent.Add(l.options.Lease), nil
		case err == nil:
			// No piece ends early but by LOCK.CANCEL or CLIENT UNBLOCK.
			isEarly := !l.isPlain && time.Since(sent) < piece-50*time.Millisecond
			if isEarly || !time.Now().Before(end) {
				return sent, fmt.Errorf("%w: somebody else has %q", ErrRefused, l.key)
			}
			if pause = 0; l.isPlain {
				pause = time.Duration(50+rand.Intn(100)) * time.Millisecond
			}
		case !mayPass(err) || tried && !time.Now().Before(end):
			return sent, err
		default:
			tried = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}
