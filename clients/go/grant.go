package serverlock

import (
	"fmt"
	"time"
)

// grant is a granted request and its details.
type grant struct {
	token       int64
	sent        time.Duration // when its request was sent
	predecessor *Predecessor
	isPortable  bool
	session     *session
}

// granted reads a reply to ACQUIRE. It returns nil and no error if the lock was not granted.
func (a *attempt) granted(reply any, sent time.Duration, waits bool) (*grant, error) {
	got := &grant{sent: sent, isPortable: a.isPortable}
	switch reply := reply.(type) {
	case nil:
		switch {
		case !waits: // a copy that does not wait leaves nothing behind
			a.mayBeQueued = a.wasQueued || a.mayRun
		case a.isPortable: // the lock was requested without its queue
			a.asksAgain = untilNextPoll()
			return nil, errWaiting
		}
		return nil, nil
	case int64:
		got.token = reply
	case []any:
		if len(reply) == 2 && text(reply[0]) == "WAITING" {
			a.wasQueued, a.hasPlace = true, true
			again, _ := reply[1].(int64)
			a.asksAgain = time.Duration(again) * time.Millisecond
			return nil, errWaiting
		}
		if len(reply) == 1 && a.request.wantsResult {
			a.mayBeQueued = false
			return nil, &resolved{value: []byte(text(reply[0]))}
		}
		if len(reply) == 4 {
			got.token, _ = reply[0].(int64)
			got.predecessor = predecessor(reply)
		}
	default:
		if text(reply) == "WAITING" {
			a.wasQueued, a.asksAgain = true, resend
			a.engine.notifyWorks.Store(true)
			return nil, errWaiting
		}
	}
	if got.token <= 0 {
		return nil, failed(ErrArgument, a.request.name, fmt.Sprintf("the server replied %v", reply))
	}
	return got, nil
}

// predecessor reads token, overdue-ms, previous token and previous owner. It returns nil if the lock was free.
func predecessor(details []any) *Predecessor {
	overdue, ok := details[1].(int64)
	if !ok {
		return nil
	}
	token, _ := details[2].(int64)
	return &Predecessor{
		Overdue: time.Duration(overdue) * time.Millisecond,
		Token:   token,
		Owner:   text(details[3]),
	}
}
