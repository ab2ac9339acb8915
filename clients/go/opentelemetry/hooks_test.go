package opentelemetry_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"example.com/serverlock"
	"example.com/serverlock/locktest"
	"example.com/serverlock/opentelemetry"
)

const lease = 30 * time.Second

// app is an application with an SDK in memory.
type app struct {
	*testing.T
	server *locktest.Server
	hooks  serverlock.Hooks
	locks  *serverlock.Locks
	spans  *tracetest.SpanRecorder
	traces *sdk.TracerProvider
	reader *metric.ManualReader
	ctx    context.Context
}

func newApp(t *testing.T, options ...opentelemetry.Option) *app {
	a := &app{
		T: t, server: locktest.NewServer(), spans: tracetest.NewSpanRecorder(), reader: metric.NewManualReader(),
		ctx: context.Background(),
	}
	a.traces = sdk.NewTracerProvider(sdk.WithSpanProcessor(a.spans))
	meters := metric.NewMeterProvider(metric.WithReader(a.reader))
	options = append(options, opentelemetry.WithTracerProvider(a.traces), opentelemetry.WithMeterProvider(meters))
	a.hooks = opentelemetry.Hooks(options...)
	a.locks = a.server.Locks(serverlock.WithHooks(a.hooks))
	t.Cleanup(a.locks.Close)
	return a
}

func (a *app) acquire(locks *serverlock.Locks) *serverlock.Held {
	a.Helper()
	held, err := locks.Lock("report", lease).Acquire(a.ctx)
	if err != nil {
		a.Fatal(err)
	}
	return held
}

// named returns the ended spans with this name.
func (a *app) named(name string) (found []sdk.ReadOnlySpan) {
	for _, span := range a.spans.Ended() {
		if span.Name() == name {
			found = append(found, span)
		}
	}
	return found
}

// shown is a span as text, with its attributes in order.
func shown(span sdk.ReadOnlySpan) string {
	attributes := []string{}
	for _, one := range span.Attributes() {
		attributes = append(attributes, fmt.Sprintf("%s=%s", one.Key, one.Value.Emit()))
	}
	slices.Sort(attributes)
	return fmt.Sprintf("%s %s %s: %s", span.Name(), span.SpanKind(), span.Status().Code, strings.Join(attributes, " "))
}

func (a *app) shows(name string, want ...string) {
	a.Helper()
	got := []string{}
	for _, span := range a.named(name) {
		got = append(got, shown(span))
	}
	if !slices.Equal(got, want) {
		a.Errorf("the spans are\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// measures checks all metrics: name, unit, attributes, the number of values and their sum.
func (a *app) measures(want ...string) {
	a.Helper()
	var collected metricdata.ResourceMetrics
	if err := a.reader.Collect(context.Background(), &collected); err != nil {
		a.Fatal(err)
	}
	got := []string{}
	for _, one := range collected.ScopeMetrics[0].Metrics {
		name := one.Name + " " + one.Unit
		switch data := one.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, point := range data.DataPoints {
				got = append(got, fmt.Sprintf("%s %s: %d, %g", name, point.Attributes.Encoded(attribute.DefaultEncoder()), point.Count, point.Sum))
			}
		case metricdata.Sum[int64]:
			for _, point := range data.DataPoints {
				got = append(got, fmt.Sprintf("%s %s: %d", name, point.Attributes.Encoded(attribute.DefaultEncoder()), point.Value))
			}
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		a.Errorf("the metrics are\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func until(t *testing.T, what string, isDone func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !isDone(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a minute has passed: " + what)
		}
	}
}

func TestAWaitAndAHoldAreChildrenOfTheCallersSpan(t *testing.T) {
	a := newApp(t)
	ctx, request := a.traces.Tracer("test").Start(a.ctx, "request")
	held, err := a.locks.Lock("report", lease).Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	a.server.Clock.Advance(7 * time.Second)
	a.measures("serverlock.held {lock} : 1", "serverlock.wait.duration s serverlock.outcome=granted: 1, 0")
	if err := held.Release(a.ctx); err != nil { // outside of the caller's span
		t.Fatal(err)
	}
	a.shows("lock.wait", "lock.wait client Unset: db.operation.name=LOCK.ACQUIRE db.system.name=redis serverlock.key=report "+
		"serverlock.outcome=granted")
	a.shows("lock.hold", fmt.Sprintf("lock.hold internal Unset: serverlock.key=report serverlock.outcome=released "+
		"serverlock.token=%d", held.Token()))
	for _, span := range a.spans.Ended() {
		if span.Parent().SpanID() != request.SpanContext().SpanID() {
			t.Errorf("the parent of %s is another span", span.Name())
		}
	}
	a.measures("serverlock.held {lock} : 0", "serverlock.wait.duration s serverlock.outcome=granted: 1, 0",
		"serverlock.hold.duration s serverlock.outcome=released: 1, 7")
}

func TestARefusalATimeOutAndACancelledAttemptAreNotErrors(t *testing.T) {
	a := newApp(t)
	others := a.server.Locks()
	defer others.Close()
	held := a.acquire(others)
	defer func() { _ = held.Release(a.ctx) }()
	if _, err := a.locks.Lock("report", lease).Acquire(a.ctx); !errors.Is(err, serverlock.ErrRefused) {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	wait := func(ctx context.Context, wait time.Duration) {
		go func() {
			_, err := a.locks.Lock("report", lease, serverlock.Wait(wait)).Acquire(ctx)
			ended <- err
		}()
		until(t, "it waits", func() bool { return a.server.Info("report").Waiters == 1 })
	}
	wait(a.ctx, 2*time.Second)
	a.server.Clock.Advance(3 * time.Second)
	if err := <-ended; !errors.Is(err, serverlock.ErrTimeout) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(a.ctx)
	wait(ctx, time.Hour)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	var want []string
	for _, outcome := range []string{"refused", "timeout", "cancelled"} {
		want = append(want, "lock.wait client Unset: db.operation.name=LOCK.ACQUIRE db.system.name=redis "+
			"serverlock.key=report serverlock.outcome="+outcome)
	}
	a.shows("lock.wait", want...)
	a.shows("lock.hold")
}

func TestAnyOtherFailureIsAnError(t *testing.T) {
	a := newApp(t)
	a.server.Refuse("report", serverlock.ErrUnavailable)
	if _, err := a.locks.Lock("report", lease).Acquire(a.ctx); !errors.Is(err, serverlock.ErrUnavailable) {
		t.Fatal(err)
	}
	a.shows("lock.wait", "lock.wait client Error: db.operation.name=LOCK.ACQUIRE db.system.name=redis "+
		"error.type=unavailable serverlock.key=report serverlock.outcome=unavailable")
}

func TestALossIsAnErrorAndAnEventOnce(t *testing.T) {
	a := newApp(t)
	held := a.acquire(a.locks)
	a.server.Lose(held)
	if err := held.Release(a.ctx); !errors.Is(err, serverlock.ErrLost) {
		t.Fatal(err)
	}
	until(t, "the span has ended", func() bool { return len(a.named("lock.hold")) == 1 })
	a.shows("lock.hold", fmt.Sprintf("lock.hold internal Error: error.type=lost serverlock.key=report "+
		"serverlock.outcome=lost serverlock.token=%d", held.Token()))
	span := a.named("lock.hold")[0]
	if events := span.Events(); len(events) != 1 || events[0].Name != "lock.lost" {
		t.Errorf("its events are %v", events)
	}
	if why := span.Status(); why.Code != codes.Error || !strings.Contains(why.Description, `the lock "report": lost`) {
		t.Errorf("its status is %v", why)
	}
	a.measures("serverlock.held {lock} : 0", "serverlock.wait.duration s serverlock.outcome=granted: 1, 0",
		"serverlock.hold.duration s serverlock.outcome=lost: 1, 0", "serverlock.losses {loss} : 1")
}

func TestALossThatOnlyTheReleaseNoticesIsOneToo(t *testing.T) {
	a := newApp(t)
	held := a.acquire(a.locks)
	a.server.Expire("report")
	if err := held.Release(a.ctx); !errors.Is(err, serverlock.ErrLost) {
		t.Fatal(err)
	}
	a.shows("lock.hold", fmt.Sprintf("lock.hold internal Error: error.type=lost serverlock.key=report "+
		"serverlock.outcome=lost serverlock.token=%d", held.Token()))
}

func TestAHoldThatTheApplicationHasForgottenExpires(t *testing.T) {
	a := newApp(t)
	a.acquire(a.locks)
	until(t, "it is collected", func() bool {
		runtime.GC()
		return len(a.named("lock.hold")) == 1
	})
	if text := shown(a.named("lock.hold")[0]); !strings.Contains(text, "internal Unset:") ||
		!strings.Contains(text, "serverlock.outcome=expired") {
		t.Error(text)
	}
}

func TestSeveralKeysAreAList(t *testing.T) {
	a := newApp(t)
	held, err := a.locks.AllOf([]string{"a", "b"}, lease).Acquire(a.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Release(a.ctx); err != nil {
		t.Fatal(err)
	}
	a.shows("lock.wait", `lock.wait client Unset: db.operation.name=LOCK.MACQUIRE db.system.name=redis `+
		`serverlock.keys=["a","b"] serverlock.outcome=granted`)
}

func TestBytesThatAreNotUTF8AreEscaped(t *testing.T) {
	a := newApp(t)
	held, err := a.locks.Lock("\xffa", lease).Acquire(a.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Release(a.ctx); err != nil {
		t.Fatal(err)
	}
	if text := shown(a.named("lock.hold")[0]); !strings.Contains(text, `serverlock.key=\xffa`) {
		t.Error(text)
	}
}

func TestMetricsHaveTheKeyOnRequest(t *testing.T) {
	a := newApp(t, opentelemetry.WithKeyAttribute())
	if err := a.acquire(a.locks).Release(a.ctx); err != nil {
		t.Fatal(err)
	}
	a.measures("serverlock.held {lock} serverlock.key=report: 0",
		"serverlock.wait.duration s serverlock.key=report,serverlock.outcome=granted: 1, 0",
		"serverlock.hold.duration s serverlock.key=report,serverlock.outcome=released: 1, 0")
}

func TestATickEndsItsSpanWithItsBody(t *testing.T) {
	a := newApp(t)
	var body trace.SpanContext
	outcome, err := a.locks.Once("report", time.Hour).Do(a.ctx, func(ctx context.Context, _ *serverlock.HeldOnce) error {
		body = trace.SpanContextFromContext(ctx)
		return nil
	})
	if outcome != serverlock.Ran || err != nil || body.IsValid() {
		t.Fatal(outcome, err, body)
	}
	if text := shown(a.named("lock.hold")[0]); !strings.Contains(text, "serverlock.outcome=released") {
		t.Error(text)
	}
}

func TestAResultOfAnotherHolderIsAnOutcome(t *testing.T) {
	a := newApp(t)
	a.hooks.Began(a.ctx, []string{"report"}).Result("LOCK.ACQUIRE", time.Second)
	a.shows("lock.wait", "lock.wait client Unset: db.operation.name=LOCK.ACQUIRE db.system.name=redis "+
		"serverlock.key=report serverlock.outcome=result")
	a.measures("serverlock.wait.duration s serverlock.outcome=result: 1, 1")
}

func TestTheVersionIsThatOfThePackages(t *testing.T) {
	a := newApp(t)
	_ = a.acquire(a.locks).Release(a.ctx)
	scope := a.spans.Ended()[0].InstrumentationScope()
	if scope.Name != "example.com/serverlock/opentelemetry" || scope.Version != opentelemetry.Version {
		t.Error(scope)
	}
	published, err := os.ReadFile("../../node/package.json")
	if err != nil || !strings.Contains(string(published), `"version": "`+scope.Version+`"`) {
		t.Error("another version than the Node package", err)
	}
}
