// Package opentelemetry records OpenTelemetry metrics for locks. It is meant to be copied.
//
//	locks := serverlock.New(client, serverlock.WithHooks(hooks))
package opentelemetry

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"example.com/serverlock"
)

// Hooks returns hooks that record the duration of waits and holds, in seconds, and count losses. Keys are not
// attributes, because there may be any number of them.
func Hooks(meter metric.Meter) (serverlock.Hooks, error) {
	waited, err1 := meter.Float64Histogram("lock.wait.duration", metric.WithUnit("s"))
	held, err2 := meter.Float64Histogram("lock.hold.duration", metric.WithUnit("s"))
	lost, err3 := meter.Int64Counter("lock.lost")
	if err := errors.Join(err1, err2, err3); err != nil {
		return serverlock.Hooks{}, err
	}
	record := func(into metric.Float64Histogram, span time.Duration, outcome string) {
		into.Record(context.Background(), span.Seconds(), metric.WithAttributes(attribute.String("lock.outcome", outcome)))
	}
	return serverlock.Hooks{
		Granted: func(_ string, span time.Duration) { record(waited, span, "granted") },
		Refused: func(_ string, span time.Duration, err error) { record(waited, span, kind(err)) },
		Lost:    func(string, time.Duration, error) { lost.Add(context.Background(), 1) },
		Released: func(_ string, span time.Duration, inTime bool) {
			outcome := "in_time"
			if !inTime {
				outcome = "too_late"
			}
			record(held, span, outcome)
		},
	}, nil
}

func kind(err error) string {
	switch {
	case errors.Is(err, serverlock.ErrTimeout):
		return "timeout"
	case errors.Is(err, serverlock.ErrRefused):
		return "refused"
	}
	return "failed"
}
