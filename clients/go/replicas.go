package serverlock

import "fmt"

// confirm returns an error unless enough replicas have the grant.
func (a *attempt) confirm() error {
	r := a.request
	timeout := r.within + a.engine.timeout
	conn := a.dedicated()
	if conn == nil {
		return connectionLostf("the connection that got the grant has closed")
	}
	within := milliseconds(r.within)
	if r.replicas > 0 {
		reply, err := conn.call(a.ctx, []any{"WAIT", int64(r.replicas), within}, timeout)
		if err != nil {
			return a.unconfirmed(err)
		}
		if have, _ := reply.(int64); have < int64(r.replicas) {
			return failed(ErrUnavailable, r.name,
				fmt.Sprintf("%d of %d replicas have the grant; the lock was released", have, r.replicas))
		}
	}
	if r.fsync {
		reply, err := conn.call(a.ctx, []any{"WAITAOF", int64(1), int64(r.replicas), within}, timeout)
		if err != nil {
			return a.unconfirmed(err)
		}
		have, want := int64(0), int64(1+r.replicas)
		if counts, ok := reply.([]any); ok && len(counts) == 2 {
			local, _ := counts[0].(int64)
			remote, _ := counts[1].(int64)
			have = local + remote
		}
		if have < want {
			return failed(ErrUnavailable, r.name,
				fmt.Sprintf("%d of %d servers wrote the grant to disk; the lock was released", have, want))
		}
	}
	return nil
}

// unconfirmed turns an error from WAIT or WAITAOF into the attempt's error. A server without WAITAOF or AOF cannot
// grant this lock.
func (a *attempt) unconfirmed(err error) error {
	switch err := err.(type) {
	case *abandoned:
		return givenUp(a.ctx, a.request.name)
	case *replyError:
		if err.code == "ERR" {
			e := failed(ErrUnavailable, a.request.name, "the grant cannot be confirmed: "+err.text)
			e.Cause = typed(err, a.request.name)
			return e
		}
	}
	return err
}
