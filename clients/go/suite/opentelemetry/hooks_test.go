package opentelemetry

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"example.com/serverlock"
)

func TestHooksCountWaitsAndHolds(t *testing.T) {
	reader := sdk.NewManualReader()
	hooks, err := Hooks(sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test"))
	if err != nil {
		t.Fatal(err)
	}
	hooks.Granted("a", time.Second)
	hooks.Granted("b", time.Second)
	hooks.Refused("a", 0, &serverlock.Error{Kind: serverlock.ErrRefused})
	hooks.Refused("a", time.Second, &serverlock.Error{Kind: serverlock.ErrTimeout})
	hooks.Refused("a", time.Second, &serverlock.Error{Kind: serverlock.ErrNoServer})
	hooks.Lost("b", time.Minute, nil)
	hooks.Released("a", time.Minute, true)
	hooks.Released("b", time.Minute, false)
	var collected metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &collected); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, one := range collected.ScopeMetrics[0].Metrics {
		switch data := one.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, point := range data.DataPoints {
				outcome, _ := point.Attributes.Value(attribute.Key("lock.outcome"))
				got = append(got, fmt.Sprintf("%s %s %d", one.Name, outcome.AsString(), point.Count))
			}
		case metricdata.Sum[int64]:
			got = append(got, fmt.Sprintf("%s %d", one.Name, data.DataPoints[0].Value))
		}
	}
	slices.Sort(got)
	want := []string{
		"lock.hold.duration in_time 1",
		"lock.hold.duration too_late 1",
		"lock.lost 1",
		"lock.wait.duration failed 1",
		"lock.wait.duration granted 2",
		"lock.wait.duration refused 1",
		"lock.wait.duration timeout 1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
