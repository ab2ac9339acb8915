// Package opentelemetry exports OpenTelemetry spans and metrics of locks:
//
//	locks := serverlock.New(client, serverlock.WithHooks(opentelemetry.Hooks()))
//
// The span lock.wait lasts from the call to its result, and the span lock.hold from the grant to its end. Their parent
// is the span of the caller's context. If the lock is lost, lock.hold has an error and the event lock.lost. It is not
// an error if somebody else has the lock, or if the caller gives up.
//
// The histograms serverlock.wait.duration and serverlock.hold.duration are in seconds. The counter serverlock.losses
// counts lost locks; serverlock.held is how many locks are held now.
package opentelemetry

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"example.com/serverlock"
)

const (
	scope = "example.com/serverlock/opentelemetry"

	outcomeKey = attribute.Key("serverlock.outcome")
)

// An Option for [Hooks].
type Option func(*settings)

type settings struct {
	traces  trace.TracerProvider
	meters  metric.MeterProvider
	hasKeys bool
}

// WithTracerProvider sets where spans go. The default is the global provider.
func WithTracerProvider(traces trace.TracerProvider) Option {
	return func(s *settings) { s.traces = traces }
}

// WithMeterProvider sets where metrics go. The default is the global provider.
func WithMeterProvider(meters metric.MeterProvider) Option {
	return func(s *settings) { s.meters = meters }
}

// WithKeyAttribute adds the key to the attributes of metrics. Use this only if there are few keys. Spans always have
// it.
func WithKeyAttribute() Option { return func(s *settings) { s.hasKeys = true } }

// Hooks returns hooks that export spans and metrics. Any number of [serverlock.Locks] may share them. Errors of the
// providers go to [otel.Handle].
func Hooks(options ...Option) serverlock.Hooks {
	s := &settings{traces: otel.GetTracerProvider(), meters: otel.GetMeterProvider()}
	for _, option := range options {
		option(s)
	}
	i := newInstruments(s.meters.Meter(scope, metric.WithInstrumentationVersion(Version)))
	i.tracer = s.traces.Tracer(scope, trace.WithInstrumentationVersion(Version))
	i.hasKeys = s.hasKeys
	return serverlock.Hooks{Began: i.began}
}

type instruments struct {
	tracer       trace.Tracer
	waits, holds metric.Float64Histogram
	losses       metric.Int64Counter
	held         metric.Int64UpDownCounter
	hasKeys      bool
}

func newInstruments(meter metric.Meter) *instruments {
	// Seconds: the default ones suit milliseconds.
	seconds := metric.WithExplicitBucketBoundaries(
		0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)
	i := &instruments{}
	var err1, err2, err3, err4 error
	i.waits, err1 = meter.Float64Histogram("serverlock.wait.duration",
		metric.WithUnit("s"), metric.WithDescription("How long attempts to get a lock took"), seconds)
	i.holds, err2 = meter.Float64Histogram("serverlock.hold.duration",
		metric.WithUnit("s"), metric.WithDescription("How long locks were held"), seconds)
	i.losses, err3 = meter.Int64Counter("serverlock.losses",
		metric.WithUnit("{loss}"), metric.WithDescription("Locks that were lost while they were held"))
	i.held, err4 = meter.Int64UpDownCounter("serverlock.held",
		metric.WithUnit("{lock}"), metric.WithDescription("Locks that are held"))
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		otel.Handle(err)
	}
	return i
}

// attempt is one attempt, and its hold.
type attempt struct {
	*instruments
	ctx        context.Context // the caller's, whose span is the parent
	key        attribute.KeyValue
	wait, hold trace.Span
}

func (i *instruments) began(ctx context.Context, keys []string) serverlock.Watch {
	for number, key := range keys {
		if !utf8.ValidString(key) {
			keys[number] = strings.Trim(strconv.Quote(key), `"`)
		}
	}
	a := &attempt{instruments: i, ctx: ctx, key: attribute.StringSlice("serverlock.keys", keys)}
	if len(keys) == 1 {
		a.key = attribute.String("serverlock.key", keys[0])
	}
	_, a.wait = i.tracer.Start(a.ctx, "lock.wait", trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(a.key, attribute.String("db.system.name", "redis")))
	return serverlock.Watch{Granted: a.granted, Failed: a.failed, Result: a.result, Ended: a.ended}
}

func (a *attempt) granted(command string, token int64, waited time.Duration) {
	a.endWait(command, waited, "granted")
	_, a.hold = a.tracer.Start(a.ctx, "lock.hold",
		trace.WithAttributes(a.key, attribute.Int64("serverlock.token", token)))
	// The context may refer to a Held, which would then be renewed for as long as this one.
	a.ctx = trace.ContextWithSpan(context.Background(), trace.SpanFromContext(a.ctx))
	a.held.Add(a.ctx, 1, a.ofMetrics())
}

func (a *attempt) failed(command string, waited time.Duration, err *serverlock.Error) {
	code := err.Code()
	if !errors.Is(err, serverlock.ErrRefused) && code != "cancelled" {
		fail(a.wait, code, err)
	}
	a.endWait(command, waited, code)
}

func (a *attempt) result(command string, waited time.Duration) {
	a.endWait(command, waited, "result")
}

func (a *attempt) endWait(command string, waited time.Duration, outcome string) {
	a.wait.SetAttributes(attribute.String("db.operation.name", command), outcomeKey.String(outcome))
	a.wait.End()
	a.waits.Record(a.ctx, waited.Seconds(), a.ofMetrics(outcomeKey.String(outcome)))
}

func (a *attempt) ended(end serverlock.End, held time.Duration, err *serverlock.Error) {
	outcome := outcomeKey.String(string(end))
	a.hold.SetAttributes(outcome)
	if end == serverlock.EndLost {
		a.hold.AddEvent("lock.lost")
		fail(a.hold, "lost", err)
		a.losses.Add(a.ctx, 1, a.ofMetrics())
	}
	a.held.Add(a.ctx, -1, a.ofMetrics())
	a.holds.Record(a.ctx, held.Seconds(), a.ofMetrics(outcome))
	a.hold.End() // last: what waits for the span finds the metrics
}

func fail(span trace.Span, kind string, err error) {
	span.SetAttributes(attribute.String("error.type", kind))
	span.SetStatus(codes.Error, err.Error())
}

func (a *attempt) ofMetrics(attributes ...attribute.KeyValue) metric.MeasurementOption {
	if a.hasKeys {
		attributes = append(attributes, a.key)
	}
	return metric.WithAttributes(attributes...)
}
