package locktest_test

import (
	"context"
	"fmt"
	"time"

	"example.com/serverlock"
	"example.com/serverlock/locktest"
)

// nightly is the code under test.
func nightly(ctx context.Context, locks *serverlock.Locks, work func(ctx context.Context) error) error {
	report := locks.Lock("report", 30*time.Second, serverlock.Wait(time.Minute))
	return report.Do(ctx, work)
}

func Example() {
	server := locktest.NewServer()
	ours, theirs := server.Locks(), server.Locks() // two processes
	defer ours.Close()
	defer theirs.Close()

	held, _ := theirs.Lock("report", 30*time.Second).Acquire(context.Background())
	ended := make(chan error)
	go func() {
		ended <- nightly(context.Background(), ours, func(ctx context.Context) error {
			server.Lose(serverlock.FromContext(ctx))
			<-ctx.Done() // the work stops
			return ctx.Err()
		})
	}()
	server.Clock.Advance(59 * time.Second)
	fmt.Println("waiting:", server.Info("report").Waiters)
	_ = held.Release(context.Background())
	fmt.Println(<-ended)

	server.Refuse("report", serverlock.ErrUnavailable)
	fmt.Println(nightly(context.Background(), ours, func(context.Context) error { return nil }))
	// Output:
	// waiting: 1
	// the lock "report": lost: somebody else has taken it
	// the lock "report": CLOCK the test refuses this key
}
