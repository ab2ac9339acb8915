// Package serverlock offers the locks of a Redis or Valkey server with the redis-lock module: waiters stand in line in
// the server, each grant has a fencing token, and a holder that crashed is known to its successor.
//
// Make one [Locks] for each client of the application, with the package of its library: serverlock/goredis for go-redis,
// serverlock/redigo for redigo. Commands go over the application's own connections.
//
//	locks := serverlock.New(goredis.New(client))
//	defer locks.Close()
//
//	report := locks.Lock("report", 30*time.Second, serverlock.Wait(time.Minute))
//	err := report.Do(ctx, func(ctx context.Context) error {
//		return write(ctx, serverlock.FromContext(ctx).Token())
//	})
//
// A [Lock] is a description: it holds nothing, and any number of goroutines may use it. Each acquisition gives a [Held]
// of its own. The lease is renewed while the lock is held, and the lock counts as lost a tenth of the lease and the
// margin of the server before others can have it, whatever the network does. A loss cancels the context of the work,
// with the error as its cause.
//
// Where the module is not loaded, the same calls work by script, with polling and without order among waiters.
//
// All errors are of type [Error], which names the lock. Test for their kind with [errors.Is]: [ErrRefused],
// [ErrTimeout], [ErrLost] and the other variables.
package serverlock
