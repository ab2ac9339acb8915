package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/anishathalye/porcupine"
)

// The lease and the margin of these histories, in milliseconds: a grant is valid for others for 1.2 s.
const (
	leaseMs  = 1_000
	marginMs = 200
)

// script is a history written by hand, in milliseconds. An operation takes two of them.
type script []operation

func (s script) op(client int, ms int64, name string, token int64, reply ...int64) script {
	end := (ms + 1) * 1_000
	op := operation{Client: client, Name: name, Token: token, Call: (ms - 1) * 1_000, Return: &end}
	if name == "ACQUIRE" || name == "RECOVER" || name == "EXTEND" {
		op.Lease = leaseMs * 1_000
	}
	if len(reply) > 0 {
		op.Reply = &reply[0]
	}
	return append(s[:len(s):len(s)], op)
}

// change changes the operation that was added last.
func (s script) change(change func(*operation)) script {
	change(&s[len(s)-1])
	return s
}

// lost leaves the last operation without a reply.
func (s script) lost() script {
	return s.change(func(op *operation) { op.Return, op.Reply = nil, nil })
}

// by names the attempt of the last operation.
func (s script) by(attempt string) script {
	return s.change(func(op *operation) { op.Attempt = attempt })
}

// long makes the lease of the last operation five times as long.
func (s script) long() script {
	return s.change(func(op *operation) { op.Lease *= 5 })
}

// from moves the call of the last operation, which waits from then on.
func (s script) from(ms int64) script {
	return s.change(func(op *operation) { op.Call, op.Wait = ms*1_000, 5_000_000 })
}

func (s script) grant(client int, ms, token int64) script {
	return s.op(client, ms, "ACQUIRE", 0, token)
}

func (s script) refuse(client int, ms int64) script {
	return s.op(client, ms, "ACQUIRE", 0)
}

func (s script) hasOrder() bool {
	for _, part := range byKey(history(s, false)) {
		if !porcupine.CheckOperations(model(marginMs*1_000), part) {
			return false
		}
	}
	return true
}

func (s script) String() string {
	text := ""
	for _, op := range s {
		text += fmt.Sprintf("\n%d %s", op.Call/1_000, describe(op, op.outcome()))
	}
	return text
}

// lose is an ACQUIRE at 10 ms whose reply was lost.
func lose() script {
	return script{}.refuse(1, 10).by("a").lost()
}

// held is a history in which client 1 was granted the lock at 10 ms, as 7.
func held() script {
	return script{}.grant(1, 10, 7)
}

func TestGoodHistoriesHaveAnOrder(t *testing.T) {
	good := map[string]script{
		"released and granted again": held().op(1, 20, "RELEASE", 7, 1).grant(2, 30, 8),
		"refused while it is held":   held().refuse(2, 500),
		"refused within the margin":  held().refuse(2, 1_150),
		"granted after it expired":   held().grant(2, 1_220, 8).op(1, 1_300, "RELEASE", 7, 0),
		"released late":              held().op(1, 1_300, "RELEASE", 7, -1).grant(2, 1_310, 8),
		"expired and forgotten":      held().op(1, 1_300, "RELEASE", 7, 0).grant(2, 1_310, 8),
		"extended within the margin": held().op(1, 1_150, "EXTEND", 7, 1).refuse(2, 2_300).grant(2, 2_360, 8),
		"extended too late":          held().op(1, 1_250, "EXTEND", 7, 0).op(1, 1_260, "RELEASE", 7, -1),
		"checked":                    held().op(1, 510, "CHECK", 7, 499).op(1, 1_100, "CHECK", 7, 0).refuse(2, 1_110),
		"recovered":                  held().op(2, 1_300, "RECOVER", 0, 8).op(1, 1_310, "CHECK", 7, 0),
		"handed off inside RELEASE":  held().grant(2, 51, 8).from(20).op(1, 51, "RELEASE", 7, 1),
		"refused to a newcomer":      held().op(1, 20, "RELEASE", 7, 1).refuse(2, 30).grant(3, 40, 8).from(15),
		"a lost RELEASE, in effect":  held().op(1, 20, "RELEASE", 7).lost().grant(2, 100, 8),
		"a lost RELEASE, without":    held().op(1, 20, "RELEASE", 7).lost().refuse(2, 100),
		"a lost EXTEND, in effect":   held().op(1, 900, "EXTEND", 7).lost().refuse(2, 1_500),
		"a lost EXTEND, without":     held().op(1, 900, "EXTEND", 7).lost().grant(2, 1_300, 8),
		"a lost EXTEND, too late":    held().op(1, 20, "RELEASE", 7, 1).op(1, 30, "EXTEND", 7).lost().grant(2, 40, 8),
		"a lost grant":               lose().refuse(2, 500).grant(2, 1_800, 7),
		"a lost grant, made late":    lose().refuse(2, 3_000),
		"a lost RECOVER":             script{}.op(1, 10, "RECOVER", 0).lost().grant(2, 20, 7).op(2, 30, "RELEASE", 7, 1),
		"asked again with its ID":    lose().refuse(2, 50).grant(1, 500, 7).by("a").refuse(2, 1_600),
		"asked again, not shortened": held().by("a").op(1, 20, "EXTEND", 7, 1).long().grant(1, 30, 7).by("a").refuse(2, 3_000),
		"asked again, too late":      lose().refuse(2, 50).grant(1, 1_300, 8).by("a"),
		"a lost grant, cancelled":    lose().refuse(2, 50).op(1, 60, "CANCEL", 0, 1).by("a").grant(2, 70, 8),
		"two keys":                   held().grant(2, 20, 7).change(func(op *operation) { op.Key = "other" }),
	}
	for name, history := range good {
		t.Run(name, func(t *testing.T) {
			if !history.hasOrder() {
				t.Errorf("has no order: %s", history)
			}
		})
	}
}

func TestBadHistoriesHaveNone(t *testing.T) {
	bad := map[string]script{
		"two holders at once":                 held().grant(2, 500, 8),
		"two holders within the margin":       held().grant(2, 1_150, 8),
		"two holders after an extension":      held().op(1, 900, "EXTEND", 7, 1).grant(2, 1_500, 8),
		"two holders, the first extends":      held().grant(2, 1_220, 8).op(1, 1_300, "EXTEND", 7, 1),
		"two holders, the second got it late": held().grant(2, 2_000, 8).from(20).op(1, 800, "RELEASE", 7, 1).grant(3, 1_500, 9),
		"two holders, the first expired late": held().grant(2, 3_000, 8).from(1_000).grant(3, 2_300, 9),
		"a token that goes back":              held().op(1, 20, "RELEASE", 7, 1).grant(2, 30, 6),
		"a token that is granted again":       held().op(1, 20, "RELEASE", 7, 1).grant(2, 30, 7),
		"released twice":                      held().op(1, 20, "RELEASE", 7, 1).op(1, 30, "RELEASE", 7, 1),
		"released in time, but it expired":    held().op(1, 1_300, "RELEASE", 7, 1),
		"released late, but it had not ended": held().op(1, 500, "RELEASE", 7, -1),
		"released by a stranger":              held().op(2, 20, "RELEASE", 5, 1),
		"extended after it expired":           held().op(1, 1_300, "EXTEND", 7, 1),
		"extended after its release":          held().op(1, 20, "RELEASE", 7, 1).op(1, 30, "EXTEND", 7, 1),
		"lost while it was held, EXTEND":      held().op(1, 500, "EXTEND", 7, 0),
		"lost while it was held, RELEASE":     held().op(1, 500, "RELEASE", 7, 0),
		"lost while it was held, CHECK":       held().op(1, 500, "CHECK", 7, 0),
		"more of the lease left than granted": held().op(1, 510, "CHECK", 7, 520),
		"less of the lease left than granted": held().op(1, 510, "CHECK", 7, 480),
		"refused although it is free":         script{}.refuse(1, 10),
		"refused although it was released":    held().op(1, 20, "RELEASE", 7, 1).refuse(2, 30),
		"refused although it has expired":     held().refuse(2, 1_230),
		"refused although nobody waits now":   script{}.grant(3, 40, 7).from(15).op(3, 50, "RELEASE", 7, 1).refuse(2, 60),
		"recovered although it is held":       held().op(2, 500, "RECOVER", 0, 8),
		"recovered although it is free":       script{}.op(2, 500, "RECOVER", 0, 8),
		"a lost grant that lasts too long":    lose().refuse(2, 50).refuse(2, 1_300),
		"a lost grant that was cancelled":     lose().refuse(2, 50).op(1, 60, "CANCEL", 0, 1).by("a").refuse(2, 70),
		"a lost grant, nothing to cancel":     lose().refuse(2, 50).op(1, 60, "CANCEL", 0, 0).by("a"),
		"asked again, gets a second token":    held().by("a").grant(1, 500, 8).by("a"),
	}
	for name, history := range bad {
		t.Run(name, func(t *testing.T) {
			if history.hasOrder() {
				t.Errorf("has an order: %s", history)
			}
		})
	}
}

func TestTheDrawnHistoryMatchesItsText(t *testing.T) {
	page := filepath.Join(t.TempDir(), "small.html")
	if err := judgeAll([]string{"../../docs/histories/small.jsonl"}, page); err != nil {
		t.Fatal(err)
	}
	drawn, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile("../../docs/histories/small.html")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(drawn, kept) {
		t.Error("go run . --page ../../docs/histories/small.html ../../docs/histories/small.jsonl")
	}
}
