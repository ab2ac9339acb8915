package serverlock_test

import (
	"errors"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// docs/MIGRATING.md shows which line to change: a program behaves the same before and after.

const redsyncProgram = `package main

import (
	"fmt"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func main() {
	client := redis.NewClient(&redis.Options{Addr: "ADDRESS"})
	rs := redsync.New(goredis.NewPool(client))
	mutex := rs.NewMutex("report", redsync.WithTries(2))
	fmt.Println(mutex.Lock(), rs.NewMutex("report").TryLock())
	fmt.Println(mutex.Extend())
	fmt.Println(mutex.Unlock())
}
`

const redislockProgram = `package main

import (
	"context"
	"fmt"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

func main() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "ADDRESS"})
	locker := redislock.New(client)
	held, err := locker.Obtain(ctx, "report", 30*time.Second, nil)
	fmt.Println(err, client.Exists(ctx, "report").Val())
	fmt.Println(held.Release(ctx), client.Exists(ctx, "report").Val())
}
`

func TestAProgramMigratesAsTheDocumentSays(t *testing.T) {
	page, err := os.ReadFile("../../docs/MIGRATING.md")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("no repository")
	}
	must(t, err)
	changes := map[string]string{}
	for _, change := range regexp.MustCompile("```diff\n-(.*)\n\\+(.*)\n```").FindAllStringSubmatch(string(page), -1) {
		changes[change[1]] = change[2]
	}
	proxy := publish(t)
	for _, one := range []struct {
		name, program, old, says string
		needs, imports           []string
	}{
		{
			"redsync", redsyncProgram, "\trs := redsync.New(goredis.NewPool(client))",
			"<nil> lock already taken, locked nodes: [0]\ntrue <nil>\ntrue <nil>\n",
			[]string{"github.com/go-redsync/redsync/v4@v4.13.0"},
			[]string{
				`"github.com/go-redsync/redsync/v4"`, `"example.com/serverlock"` + "\n\t" + `"example.com/serverlock/redsync"`,
				`"github.com/go-redsync/redsync/v4/redis/goredis/v9"`, `"example.com/serverlock/goredis"`,
			},
		},
		{
			"redislock", redislockProgram, "\tlocker := redislock.New(client)",
			"<nil> 1\n<nil> 0\n",
			[]string{"github.com/bsm/redislock@v0.9.4"},
			[]string{
				`"github.com/bsm/redislock"`, `"example.com/serverlock"` + "\n\t" + `"example.com/serverlock/goredis"` +
					"\n\t" + `"example.com/serverlock/redislock"`,
			},
		},
	} {
		change, ok := changes[one.old]
		if !ok || !strings.Contains(one.program, one.old+"\n") {
			t.Errorf("%s: the document has a different line", one.name)
			continue
		}
		changed := strings.NewReplacer(one.imports...).Replace(strings.ReplaceAll(one.program, one.old, change))
		address := startServer(t)
		client := redis.NewClient(&redis.Options{Addr: address})
		defer func() { _ = client.Close() }()
		for _, program := range []string{one.program, changed} {
			p := newProject(t, proxy, one.name+".test")
			p.write("main.go", strings.ReplaceAll(program, "ADDRESS", address))
			isNew := program == changed
			if isNew {
				p.run("get", path+"/goredis@"+version)
			} else {
				p.run(append([]string{"get", "github.com/redis/go-redis/v9@v9.17.3"}, one.needs...)...)
			}
			if output := p.run("run", "."); output != one.says {
				t.Errorf("%s, changed: %v, printed\n%s", one.name, isNew, output)
			}
			stats := strings.ToLower(client.Info(background, "commandstats").Val())
			if strings.Contains(stats, "cmdstat_lock.acquire") != isNew {
				t.Errorf("%s, changed: %v: the server has run\n%s", one.name, isNew, stats)
			}
		}
	}
}
