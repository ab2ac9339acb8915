// One process of the comparison, in Go: peers CONTENDER PORTS. run.py describes its input.
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

// sharing is implemented by contenders with a lock for readers.
type sharing interface {
	shared(client int, key string) lock
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
	// The writers' part, when the others are readers.
	Writers *answer `json:"writers,omitempty"`
}

func main() {
	made, err := makers[os.Args[1]](strings.Split(os.Args[2], ","))
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
	case "readers":
		return readersAndWriters(made, key, clients, int(number(words[4])), seconds)
	case "crowd":
		// The waiters of one lock have different numbers.
		locks := int(number(words[4]))
		return crowd(clients, seconds, number(words[5]), func(client int) lock {
			return made.lock(client/locks, fmt.Sprintf("%s:%d", key, client%locks))
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
	return summary(every)
}

func summary(every []*measured) answer {
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

// readersAndWriters measures the time until each grant of a shared lock, and of the exclusive lock on the same key.
func readersAndWriters(made contender, key string, clients, writers int, seconds float64) answer {
	var written answer
	var running sync.WaitGroup
	running.Add(1)
	go func() {
		defer running.Done()
		written = together(writers, seconds, grants, func(client int) lock { return made.lock(client, key) })
	}()
	read := together(clients-writers, seconds, grants, func(client int) lock {
		return made.(sharing).shared(writers+client, key)
	})
	running.Wait()
	read.Writers = &written
	return read
}

// window is when a crowd is measured: it opens some time after all have asked for their locks.
type window struct {
	asked          sync.WaitGroup
	opened, closed atomic.Bool
}

// crowd tells run.py when the window opens and when it closes, with a line each, because it measures the server.
func crowd(clients int, seconds, warm float64, locks func(client int) lock) answer {
	w := &window{}
	w.asked.Add(clients)
	every := make([]*measured, clients)
	var running sync.WaitGroup
	for client := range every {
		running.Add(1)
		go func() {
			defer running.Done()
			every[client] = w.grants(locks(client))
		}()
	}
	w.asked.Wait()
	time.Sleep(time.Duration(warm * float64(time.Second)))
	w.opened.Store(true)
	fmt.Println("{}")
	time.Sleep(time.Duration(seconds * float64(time.Second)))
	w.closed.Store(true)
	fmt.Println("{}")
	running.Wait()
	return summary(every)
}

// grants measures the time until each grant after the window has opened. Only those before it closes count. A client
// that gives up has waited, too.
func (w *window) grants(acquire lock) *measured {
	found := &measured{}
	w.asked.Done()
	for !w.closed.Load() {
		asked := time.Now()
		held, err := acquire()
		if err != nil {
			found.waits = append(found.waits, time.Since(asked))
			found.errors++
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if w.opened.Load() {
			found.waits = append(found.waits, time.Since(asked))
			if !w.closed.Load() {
				found.inTime++
			}
		}
		if held.Release() != nil {
			found.errors++
		}
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
