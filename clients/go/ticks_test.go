package serverlock

import (
	"testing"
	"time"
)

const (
	day       = 24 * time.Hour
	startTick = 1_799_971_200 * time.Second // a tick of each of the periods below
)

var periods = []time.Duration{10 * time.Second, time.Minute, time.Hour, day, 12500 * time.Millisecond}

func part(period time.Duration, share float64) time.Duration {
	return time.Duration(float64(period) * share)
}

func TestATickIsTheNearestBeginning(t *testing.T) {
	for _, period := range periods {
		tick := int64(startTick / period)
		if time.Duration(tick)*period != startTick {
			t.Fatalf("%v does not divide the start", period)
		}
		for _, one := range []struct {
			shift float64
			meant int64
		}{{-0.5, 0}, {-0.499, 0}, {0, 0}, {0.4, 0}, {-0.4, 0}, {0.499, 0}, {0.5, 1}, {-0.501, -1}} {
			if got := tickAt(startTick+part(period, one.shift), period); got != tick+one.meant {
				t.Errorf("%v periods of %v after tick %d it is tick %d", one.shift, period, tick, got)
			}
		}
	}
}

func TestHalfWayBelongsToTheLaterTickWhetherItIsOddOrEven(t *testing.T) {
	const period = 10 * time.Second
	for _, tick := range []int64{180_000_000, 180_000_001} {
		end := windowEnds(tick, period)
		if tickAt(end, period) != tick+1 || tickAt(end-1, period) != tick || tickAt(windowBegins(tick, period), period) != tick {
			t.Errorf("the window of tick %d does not end half-way", tick)
		}
	}
}

func TestWindowsFollowEachOther(t *testing.T) {
	for _, period := range append(periods, 10*time.Second+1) {
		for _, tick := range []int64{7, 8} {
			begin, end := windowBegins(tick, period), windowEnds(tick, period)
			if end-begin != period || tickAt(begin, period) != tick || tickAt(end, period) != tick+1 {
				t.Errorf("the window of tick %d is from %v to %v", tick, begin, end)
			}
		}
	}
}

func TestTheOrdinaryEndOfTheLastTickIsNotACrash(t *testing.T) {
	for _, period := range periods {
		tick, begins := int64(startTick/period), startTick-period/2
		for _, one := range []struct {
			expired time.Duration
			isCrash bool
		}{
			{begins - period, false}, {begins, false}, {begins + 600*time.Millisecond, false},
			{begins + ordinaryDelay, false}, {begins + ordinaryDelay + 10*time.Millisecond, true}, {startTick, true},
		} {
			if isRecovery(one.expired, tick, period) != one.isCrash {
				t.Errorf("%v after the window of %v began, the end is a crash: %v", one.expired-begins, period, !one.isCrash)
			}
		}
	}
}

func TestTheDefaultLeaseLeavesTimeToRunTheTickAgain(t *testing.T) {
	for period, want := range map[time.Duration]time.Duration{
		10 * time.Second: 2500 * time.Millisecond, 40 * time.Second: 10 * time.Second, time.Hour: 10 * time.Second,
	} {
		if got := defaultLease(period); got != want {
			t.Errorf("the default for %v is %v", period, got)
		}
	}
}

func TestTheLeaseEndsAMarginBeforeHalfWayOnTheLocalClock(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for doubt, later := range map[time.Duration]time.Duration{
		0: 0, 100 * ms: 100 * ms, 250 * ms: 250 * ms, 5 * s: 250 * ms, // never earlier, and by less than ordinaryDelay
	} {
		run := tickRun{
			tick: 180_000_000, period: 10 * s, clock: estimate{offset: 1_799_999_000 * s, doubt: doubt}, margin: 1500 * ms,
		}
		if got := run.leaseEnds(); got != 1000*s+5*s-1500*ms+later {
			t.Errorf("with a doubt of %v it ends at %v", doubt, got)
		}
	}
}
