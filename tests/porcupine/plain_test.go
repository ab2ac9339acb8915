package main

import (
	"math/rand/v2"
	"testing"

	"github.com/anishathalye/porcupine"
)

// holding is a history of a lock without leases, written by hand. An operation takes two moments.
type holding []operation

func (h holding) acquire(client int, at int64, hold string, token int64) holding {
	end := at + 1
	return append(h[:len(h):len(h)], operation{
		Client: client, Name: "ACQUIRE", Attempt: hold, Token: token, Call: at - 1, Return: &end,
	})
}

func (h holding) release(client int, at int64, hold string) holding {
	end := at + 1
	return append(h[:len(h):len(h)], operation{Client: client, Name: "RELEASE", Attempt: hold, Call: at - 1, Return: &end})
}

// open leaves the last operation without a result.
func (h holding) open() holding {
	h[len(h)-1].Return = nil
	return h
}

func TestPlainLocks(t *testing.T) {
	one := holding{}.acquire(1, 10, "a", 5).release(1, 20, "a")
	cases := []struct {
		name     string
		workload string
		permits  int
		history  holding
		is       porcupine.CheckResult
	}{
		{"one after the other", mutex, 1, one.acquire(2, 30, "b", 6), porcupine.Ok},
		{"two at once", mutex, 1, holding{}.acquire(1, 10, "a", 5).acquire(2, 15, "b", 6).release(1, 20, "a"), porcupine.Illegal},
		{"one never releases", mutex, 1, holding{}.acquire(1, 10, "a", 5).acquire(2, 15, "b", 6), porcupine.Illegal},
		{"a release and a grant overlap", mutex, 1, one.acquire(2, 20, "b", 6), porcupine.Ok},
		{"a grant just before a release", mutex, 1, one.acquire(2, 17, "b", 6), porcupine.Illegal},
		{"an open release", mutex, 1, holding{}.acquire(1, 10, "a", 5).release(1, 20, "a").open().acquire(2, 90, "b", 6), porcupine.Ok},
		{"a grant before an open release", mutex, 1, holding{}.acquire(1, 10, "a", 5).release(1, 20, "a").open().acquire(2, 15, "b", 6), porcupine.Illegal},
		{"a release without a grant", mutex, 1, one.release(1, 30, "a"), porcupine.Illegal},
		{"a mutex does not compare tokens", mutex, 1, one.acquire(2, 30, "b", 5), porcupine.Ok},
		{"tokens increase", fencedMutex, 1, one.acquire(2, 30, "b", 6), porcupine.Ok},
		{"the same token", fencedMutex, 1, one.acquire(2, 30, "b", 5), porcupine.Illegal},
		{"a smaller token", fencedMutex, 1, one.acquire(2, 30, "b", 4), porcupine.Illegal},
		{"two at once, with tokens", fencedMutex, 1, holding{}.acquire(1, 10, "a", 5).acquire(2, 15, "b", 6), porcupine.Illegal},
		{"two of two", semaphore, 2, holding{}.acquire(1, 10, "a", 0).acquire(2, 15, "b", 0), porcupine.Ok},
		{"three of two", semaphore, 2, holding{}.acquire(1, 10, "a", 0).acquire(2, 15, "b", 0).acquire(3, 20, "c", 0), porcupine.Illegal},
		{"two and a later one", semaphore, 2, holding{}.acquire(1, 10, "a", 0).acquire(2, 15, "b", 0).release(1, 20, "a").acquire(3, 30, "c", 0), porcupine.Ok},
		{"the same process twice", semaphore, 2, holding{}.acquire(1, 10, "a", 0).acquire(1, 15, "b", 0).acquire(1, 20, "c", 0), porcupine.Illegal},
	}
	for _, test := range cases {
		model := plain(run{Workload: test.workload, Permits: test.permits})
		if is := porcupine.CheckOperations(model, plainHistory(test.history)); is != (test.is == porcupine.Ok) {
			t.Errorf("%s: %v", test.name, is)
		}
	}
}

// A lock that grants always is rejected, and one that lets clients in one after the other is not.
func TestRandomPlainLocks(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		var right, wrong holding
		now := int64(10)
		for number := range 40 {
			hold := string(rune('A' + number))
			right = right.acquire(number%3, now, hold, now).release(number%3, now+2+dice.Int64N(5), hold)
			now += 7
			wrong = wrong.acquire(number%3, 10+dice.Int64N(20), hold, now).release(number%3, 40+dice.Int64N(20), hold)
		}
		for _, workload := range []string{mutex, fencedMutex} {
			model := plain(run{Workload: workload, Permits: 1})
			if !porcupine.CheckOperations(model, plainHistory(right)) {
				t.Errorf("%s: a right history is rejected", workload)
			}
			if porcupine.CheckOperations(model, plainHistory(wrong)) {
				t.Errorf("%s: a wrong history is accepted", workload)
			}
		}
	}
}
