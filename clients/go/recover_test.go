package serverlock

import (
	"context"
	"strings"
	"testing"
	"time"

	"example.com/serverlock/driver"
)

func TestARefusedRecoverSaysIfTheLockIsFree(t *testing.T) {
	for _, one := range []struct {
		state any
		err   error
		says  bool
	}{
		{"free", nil, true},
		{[]byte("free"), nil, true},
		{"held", nil, false},
		{nil, driver.ReplyError("NOPERM no LOCK.INFO"), false},
	} {
		module := &scripted{reply: func(words []any) (any, error) {
			if words[0] == "LOCK.INFO" {
				return []any{"state", one.state}, one.err
			}
			return nil, nil
		}}
		script := scriptOnly(func(function string, _ []string, args []any) (any, error) {
			if function == "lock_info" && len(args) == 0 {
				return []any{"state", one.state}, one.err
			}
			return nil, nil
		})
		for _, server := range []*scripted{module, script} {
			locks := opened(t, server)
			_, err := locks.Recover("a", time.Minute).Acquire(context.Background())
			mustKind(t, err, ErrRefused)
			if says := strings.Contains(err.Error(), "there is nothing to recover: the lock is free"); says != one.says {
				t.Errorf("%v, %v: %v", one.state, one.err, err)
			}
			_, err = locks.Lock("a", time.Minute).Acquire(context.Background())
			mustKind(t, err, ErrRefused)
		}
		if asked := len(module.words("LOCK.INFO")); asked != 1 {
			t.Errorf("LOCK.INFO was sent %d times", asked)
		}
	}
}
