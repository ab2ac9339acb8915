// One process of the comparison, in Go: peers CONTENDER PORT. run.py describes its input.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const wait = 2 * time.Minute

var (
	background = context.Background()
	lease      = leaseFromEnvironment()
)

// held is a lock that a client holds.
type held interface {
	Release() error
	// Token is the fencing token, or 0 if the lock has none.
	Token() int64
}

// lock acquires.
type lock func() (held, error)

// contender makes the locks of one process. Each client has a number, and keeps its connection or session.
type contender interface {
	lock(client int, key string) lock
}

// semaphores is implemented by contenders that have them.
type semaphores interface {
	slots(client int, key string, permits int) lock
}

// measured is what one client has measured.
type measured struct {
	waits  []time.Duration
	inTime int
	errors int
}

// answer is what run.py reads.
type answer struct {
	Counts []int       `json:"counts"`
	Waits  map[int]int `json:"waits"`
	Errors int         `json:"errors"`
	GapMs  float64     `json:"gap_ms"`
}

func main() {
	port := os.Args[2]
	made, err := makers[os.Args[1]](port)
	must(err)
	fmt.Println("{}")
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		said, err := json.Marshal(follow(made, strings.Fields(orders.Text())))
		must(err)
		fmt.Println(string(said))
	}
}

func follow(made contender, words []string) answer {
	key := words[1]
	if words[0] == "hold" {
		_, err := made.lock(0, key)()
		must(err)
		return answer{}
	}
	clients, seconds := int(number(words[2])), number(words[3])
	same := func(client int) lock { return made.lock(client, key) }
	switch words[0] {
	case "free":
		return together(clients, seconds, pairs, func(client int) lock {
			return made.lock(client, fmt.Sprintf("%s:%d", key, client))
		})
	case "hot":
		return together(clients, seconds, grants, same)
	case "slots":
		permits := int(number(words[4]))
		return together(clients, seconds, grants, func(client int) lock {
			return made.(semaphores).slots(client, key, permits)
		})
	case "outage":
		gaps := &gaps{last: time.Now()}
		said := together(clients, seconds, gaps.stubborn, same)
		said.GapMs = float64(gaps.longest) / 1e6
		return said
	case "count":
		isFenced := words[5] == "fenced"
		return together(clients, seconds, func(acquire lock, end time.Time) *measured {
			return increments(acquire, end, words[4], isFenced)
		}, same)
	}
	log.Fatalf("no order %v", words)
	return answer{}
}

func together(clients int, seconds float64, body func(lock, time.Time) *measured, locks func(client int) lock) answer {
	own := make([]lock, clients)
	for client := range own {
		own[client] = locks(client)
	}
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	every := make([]*measured, clients)
	var running sync.WaitGroup
	for client := range own {
		running.Add(1)
		go func() {
			defer running.Done()
			every[client] = body(own[client], end)
		}()
	}
	running.Wait()
	said := answer{Waits: map[int]int{}}
	for _, one := range every {
		said.Counts = append(said.Counts, one.inTime)
		said.Errors += one.errors
		for _, took := range one.waits {
			said.Waits[int(math.Round(math.Log(max(1, float64(took)))/math.Log(1.02)))]++
		}
	}
	return said
}

// pairs measures acquire and release.
func pairs(acquire lock, end time.Time) *measured {
	found := &measured{}
	for asked := time.Now(); asked.Before(end); {
		held, err := acquire()
		must(err)
		must(held.Release())
		now := time.Now()
		found.waits = append(found.waits, now.Sub(asked))
		found.inTime++
		asked = now
	}
	return found
}

// grants measures the time until each grant.
func grants(acquire lock, end time.Time) *measured {
	found := &measured{}
	for asked := time.Now(); asked.Before(end); asked = time.Now() {
		held, err := acquire()
		must(err)
		now := time.Now()
		found.waits = append(found.waits, now.Sub(asked))
		if now.Before(end) {
			found.inTime++
		}
		must(held.Release())
	}
	return found
}

// gaps notes the longest time without a grant.
type gaps struct {
	mutex   sync.Mutex
	last    time.Time
	longest time.Duration
}

// stubborn goes on after errors.
func (g *gaps) stubborn(acquire lock, end time.Time) *measured {
	found := &measured{}
	for asked := time.Now(); asked.Before(end); asked = time.Now() {
		held, err := acquire()
		now := time.Now()
		if err != nil {
			found.errors++
			time.Sleep(10 * time.Millisecond)
			continue
		}
		g.mutex.Lock()
		g.longest, g.last = max(g.longest, now.Sub(g.last)), now
		g.mutex.Unlock()
		found.waits = append(found.waits, now.Sub(asked))
		if now.Before(end) {
			found.inTime++
		}
		if held.Release() != nil {
			found.errors++
		}
	}
	return found
}

// increments adds to the counter that the lock guards, and counts the accepted writes.
func increments(acquire lock, end time.Time, port string, isFenced bool) *measured {
	found := &measured{}
	conn, err := net.Dial("tcp", "127.0.0.1:"+port)
	must(err)
	replies := bufio.NewReader(conn)
	ask := func(format string, words ...any) string {
		_, err := fmt.Fprintf(conn, format+"\n", words...)
		must(err)
		said, err := replies.ReadString('\n')
		must(err)
		return strings.TrimSpace(said)
	}
	for time.Now().Before(end) {
		held, err := acquire()
		if err != nil {
			found.errors++
			time.Sleep(10 * time.Millisecond)
			continue
		}
		value := int64(number(ask("get %d", os.Getpid())))
		time.Sleep(5 * time.Millisecond)
		token := int64(0)
		if isFenced {
			token = held.Token()
		}
		if ask("put %d %d", value+1, token) == "ok" {
			found.inTime++
		}
		if held.Release() != nil {
			found.errors++
		}
	}
	return found
}

// perClient keeps a value for each client's number.
type perClient[T any] struct {
	mutex  sync.Mutex
	values map[int]T
	create func() (T, error)
}

func (p *perClient[T]) of(client int) T {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.values == nil {
		p.values = map[int]T{}
	}
	if _, exists := p.values[client]; !exists {
		value, err := p.create()
		must(err)
		p.values[client] = value
	}
	return p.values[client]
}

func (p *perClient[T]) forget(client int) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delete(p.values, client)
}

func leaseFromEnvironment() time.Duration {
	if text, found := os.LookupEnv("LEASE_MS"); found {
		return time.Duration(number(text)) * time.Millisecond
	}
	return 30 * time.Second
}

func number(text string) float64 {
	value, err := strconv.ParseFloat(text, 64)
	must(err)
	return value
}

var lastID atomic.Int64

// nextID is unique in this process, and very probably among processes.
func nextID() int64 { return int64(os.Getpid())<<32 | lastID.Add(1) }

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
