package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/anishathalye/porcupine"
)

// run is the first line of a file: what was under test.
type run struct {
	Setup string `json:"setup"`
	Seed  uint64 `json:"seed"`
	// Margin is lock.margin-ms, in microseconds.
	Margin int64 `json:"margin"`
	// Grace is whether a failover grace can keep a free lock from its waiters.
	Grace bool `json:"grace"`
	// Workload and Permits are of tests/jepsen: a lock without leases (plain.go).
	Workload string `json:"workload"`
	Permits  int    `json:"permits"`
}

// operation is every other line of a file. All times and durations are in microseconds.
type operation struct {
	Key    string `json:"key"`
	Client int    `json:"client"`
	Name   string `json:"op"`
	// Attempt names the attempt of an ACQUIRE with an ID, and the one that CANCEL ends.
	Attempt string `json:"attempt"`
	Token   int64  `json:"token"`
	Lease   int64  `json:"lease"`
	Wait    int64  `json:"wait"`
	Call    int64  `json:"call"`
	// Return is missing if the reply was lost: the operation may take effect at any later time, or never.
	Return *int64 `json:"return"`
	// Reply is missing for nil.
	Reply *int64 `json:"reply"`

	// end is the moment of the return, or the end of time.
	end int64
	// replies is the number of operations on the key that got one.
	replies int
	// others is whether other clients may be waiting: a free lock is then refused to newcomers.
	others bool
}

// outcome is what an operation's reply shows.
type outcome struct {
	isLost, isNil bool
	number        int64
}

func (op operation) outcome() outcome {
	switch {
	case op.Return == nil:
		return outcome{isLost: true}
	case op.Reply == nil:
		return outcome{isNil: true}
	}
	return outcome{number: *op.Reply}
}

func describe(op operation, out outcome) string {
	argument := op.Attempt
	if op.Token != 0 {
		argument = fmt.Sprint(op.Token)
	}
	reply := fmt.Sprint(out.number)
	if out.isNil {
		reply = "nil"
	}
	if out.isLost {
		reply = "?"
	}
	lease, wait := "", ""
	if op.Lease > 0 {
		lease = fmt.Sprintf(" PX %d", op.Lease/1_000)
	}
	if op.Wait > 0 {
		wait = fmt.Sprintf(" WAIT %d", op.Wait/1_000)
	}
	return fmt.Sprintf("%s %s%s%s → %s", op.Name, argument, lease, wait, reply)
}

// read returns the run and the operations of a file.
func read(path string) (run, []operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return run{}, nil, err
	}
	defer file.Close()
	var what run
	var ops []operation
	lines := json.NewDecoder(bufio.NewReader(file))
	if err := lines.Decode(&what); err != nil {
		return run{}, nil, fmt.Errorf("%s: %w", path, err)
	}
	for {
		var op operation
		err := lines.Decode(&op)
		if errors.Is(err, io.EOF) {
			return what, ops, nil
		}
		if err != nil {
			return run{}, nil, fmt.Errorf("%s: operation %d: %w", path, len(ops)+1, err)
		}
		ops = append(ops, op)
	}
}

// never is later than every moment of a run, and far from an overflow.
const never = 1 << 62

// history returns the operations as Porcupine takes them. An operation whose reply was lost stays open to the end.
func history(ops []operation, grace bool) []porcupine.Operation {
	waiting, replies := map[string][]int{}, map[string]int{}
	for at := range ops {
		ops[at].end = never
		if ops[at].Return != nil {
			ops[at].end = *ops[at].Return
			replies[ops[at].Key]++
		}
		if ops[at].Wait > 0 {
			waiting[ops[at].Key] = append(waiting[ops[at].Key], at)
		}
	}
	var all []porcupine.Operation
	for at, op := range ops {
		op.replies = replies[op.Key]
		for _, other := range waiting[op.Key] {
			waiter := ops[other]
			isOther := other != at && (op.Attempt == "" || waiter.Attempt != op.Attempt)
			op.others = op.others || (isOther && waiter.Call <= op.end && waiter.end >= op.Call)
		}
		// The grace keeps a free lock from a waiter; without WAIT the reply is an error.
		op.others = op.others || (grace && op.Wait > 0)
		all = append(all, porcupine.Operation{
			ClientId: op.Client, Input: op, Call: op.Call, Output: op.outcome(), Return: op.end,
		})
	}
	return all
}

// byKey splits a history: locks do not affect each other.
func byKey(all []porcupine.Operation) [][]porcupine.Operation {
	var keys []string
	parts := map[string][]porcupine.Operation{}
	for _, op := range all {
		key := op.Input.(operation).Key
		if _, isKnown := parts[key]; !isKnown {
			keys = append(keys, key)
		}
		parts[key] = append(parts[key], op)
	}
	split := make([][]porcupine.Operation, 0, len(keys))
	for _, key := range keys {
		split = append(split, parts[key])
	}
	return split
}
