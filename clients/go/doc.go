// Package serverlock offers locks on a Redis or Valkey server: waiters queue in the server, each grant has a fencing
// token, and a new holder can tell if its predecessor crashed.
//
// Create one [Locks] for each Redis client in the application, with the package for its library: serverlock/goredis for
// go-redis, serverlock/redigo for redigo. Commands use the application's own connections.
//
//	locks := serverlock.New(goredis.New(client))
//	defer locks.Close()
//
//	report := locks.Lock("report", 30*time.Second, serverlock.Wait(time.Minute))
//	err := report.Do(ctx, func(ctx context.Context) error {
//		return write(ctx, serverlock.FromContext(ctx).Token())
//	})
//
// A [Lock] is a description: it holds nothing, and is safe for concurrent use. Each acquisition returns its own [Held].
// The lease is renewed while the lock is held. Whatever the network does, the holder considers the lock lost a tenth of
// the lease plus the server's margin before anyone else can get it. A loss cancels the work's context, with the error
// as its cause.
//
// [Locks.Once] is for cron jobs: of all the processes that call it for a tick, one runs the body.
//
// [Locks.SingleFlight] is for values that many callers need at the same moment: one of them computes the value, and all
// that wait get it.
//
// With the redis-lock module, the server hands each lock to the next waiter. Without it, the same calls use a script,
// which notifies the next waiter, so locks are still granted in order of arrival. [Session] needs the module, and
// [Locks.AllOf] polls without it. Shared, Limit and AllOf need the module for keys with a brace but no hash tag.
//
// All errors are of type [Error], which names the lock. Test for their kind with [errors.Is]: [ErrRefused],
// [ErrTimeout], [ErrLost] and the other variables.
package serverlock
