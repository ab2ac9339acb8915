package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// Workloads of tests/jepsen.
const (
	mutex       = "mutex"
	fencedMutex = "fenced-mutex"
	semaphore   = "semaphore"
)

// holders is a lock without leases after some operations.
type holders struct {
	// holds are the names of the grants that have not been released, sorted and joined.
	holds string
	// last is the token of the last grant, if grants are fenced.
	last int64
}

// plain returns the specification of a lock or semaphore without leases: it is granted while fewer than permits hold
// it, and only a release ends a grant. If it is fenced, each token is larger than those before it.
func plain(what run) porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} { return holders{} },
		Step: func(before, input, _ interface{}) (bool, interface{}) {
			return plainStep(before.(holders), input.(operation), what.Permits, what.Workload == fencedMutex)
		},
		DescribeOperation: func(input, _ interface{}) string {
			op := input.(operation)
			return fmt.Sprintf("%s %s, token %d", op.Name, op.Attempt, op.Token)
		},
		DescribeState: func(state interface{}) string { return fmt.Sprintf("held by [%s]", state.(holders).holds) },
	}
}

// plainStep returns whether op can come next, and the state after it.
func plainStep(s holders, op operation, permits int, isFenced bool) (bool, holders) {
	holds := strings.Fields(s.holds)
	at, isHeld := slices.BinarySearch(holds, op.Attempt)
	switch {
	case op.Name == "ACQUIRE" && !isHeld && len(holds) < permits:
		if isFenced && op.Token <= s.last {
			return false, s
		}
		if isFenced {
			s.last = op.Token
		}
		holds = slices.Insert(holds, at, op.Attempt)
	case op.Name == "RELEASE" && isHeld:
		holds = slices.Delete(holds, at, at+1)
	default:
		return false, s
	}
	s.holds = strings.Join(holds, " ")
	return true, s
}

// plainHistory returns the operations as Porcupine takes them. A release without a result stays open to the end.
func plainHistory(ops []operation) []porcupine.Operation {
	var all []porcupine.Operation
	for _, op := range ops {
		end := int64(never)
		if op.Return != nil {
			end = *op.Return
		}
		all = append(all, porcupine.Operation{ClientId: op.Client, Input: op, Call: op.Call, Return: end})
	}
	return all
}

// verdict judges the only history of a file of tests/jepsen.
func verdict(path string) (porcupine.CheckResult, error) {
	what, ops, err := read(path)
	if err != nil {
		return "", err
	}
	if !slices.Contains([]string{mutex, fencedMutex, semaphore}, what.Workload) || what.Permits < 1 {
		return "", fmt.Errorf("%s: workload %q with %d permits", path, what.Workload, what.Permits)
	}
	return porcupine.CheckOperationsTimeout(plain(what), plainHistory(ops), patience), nil
}
