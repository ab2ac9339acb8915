// Carries out the orders of clients/suite with this package: "driver go-redis" or "driver redigo". docs/CLIENT_SPEC.md
// describes the protocol.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"

	"example.com/serverlock"
)

var (
	errWork = errors.New("the work failed")
	writing sync.Mutex
)

type fields map[string]any

// cannot names what this language cannot express.
type cannot string

func (c cannot) Error() string { return string(c) }

func say(line fields) {
	writing.Lock()
	defer writing.Unlock()
	packed, err := json.Marshal(line)
	if err != nil {
		packed, _ = json.Marshal(fields{"n": line["n"], "error": fields{"kind": "unknown", "text": err.Error()}})
	}
	_, _ = os.Stdout.Write(append(packed, '\n'))
}

func answer(n int, ok fields, err error) {
	if err == nil {
		if ok == nil {
			ok = fields{}
		}
		say(fields{"n": n, "ok": ok})
		return
	}
	kind := "unknown"
	var not cannot
	var ours *serverlock.Error
	switch {
	case errors.As(err, &not):
		kind = "cannot"
	case errors.As(err, &ours):
		kind = ours.Code()
	case errors.Is(err, errWork):
		kind = "work"
	case errors.Is(err, context.Canceled):
		kind = "cancelled"
	}
	say(fields{"n": n, "error": fields{"kind": kind, "text": err.Error()}})
}

func version(path string) string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == path {
			return module.Version
		}
	}
	return ""
}

func main() {
	library, ok := libraries[os.Args[1]]
	if !ok {
		fmt.Fprintln(os.Stderr, "no such library:", os.Args[1])
		os.Exit(2)
	}
	player := newPlayer(library)
	can := append([]string{"tls", "unix", "cancel", "stop", "background", "pooled", "session", "leader", "drop",
		"storm", "census", "refusals", "scopes", "moves", "few_threads", "half_open", "queue", "once", "single_flight",
		"reentrant", "deadlock", "default_owner", "recover_free", "memory"}, library.can...)
	say(fields{"event": "ready", "language": "go", "client": os.Args[1], "version": version(library.path), "can": can,
		"storms": []string{"cancel", "deadline"}})
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			os.Exit(0) // at once, without releasing anything
		}
		var read order
		if err := json.Unmarshal(line, &read); err != nil {
			answer(read.N, nil, cannot(err.Error()))
			continue
		}
		ctx := player.begin(read.N) // before the next order, which may cancel this one
		go func() {
			ok, err := player.play(ctx, &read)
			player.end(read.N)
			answer(read.N, ok, err)
		}()
	}
}
