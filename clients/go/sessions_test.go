package serverlock

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	goredislib "github.com/redis/go-redis/v9"

	"example.com/serverlock/driver"
	"example.com/serverlock/goredis"
	"example.com/serverlock/internal/server"
	"example.com/serverlock/redigo"
)

// sessionServer grants every lock over a dedicated connection, except the busy ones. A wait for those ends with CANCEL,
// unless the server is mute.
type sessionServer struct {
	*scripted
	mu      sync.Mutex
	conns   []*sessionConn
	of      map[any]int // the number of the connection that got a key
	busy    map[any]bool
	isMute  bool
	replies map[any]string // error replies to the next ACQUIRE of a key
	waits   map[any]*sessionConn
	copies  map[any]int
	node    func(key string) driver.Node
}

type sessionConn struct {
	server  *sessionServer
	number  int
	replies chan any
	closed  chan struct{}
	closing sync.Once
}

func newSessionServer() *sessionServer {
	s := &sessionServer{
		of: map[any]int{}, busy: map[any]bool{}, replies: map[any]string{}, waits: map[any]*sessionConn{}, copies: map[any]int{},
	}
	s.scripted = &scripted{reply: func(words []any) (any, error) {
		if words[0] == "LOCK.CANCEL" {
			s.endWait(words[1])
		}
		if words[0] == "LOCK.MRELEASE" {
			return words[1], nil
		}
		return int64(1), nil
	}}
	return s
}

func (s *sessionServer) Node(_ context.Context, key string) (driver.Node, error) {
	if s.node != nil {
		return s.node(key), nil
	}
	return s, nil
}

func (s *sessionServer) Dial(context.Context) (driver.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	conn := &sessionConn{server: s, number: len(s.conns), replies: make(chan any, 9), closed: make(chan struct{})}
	s.conns = append(s.conns, conn)
	return conn, nil
}

func (s *sessionServer) endWait(key any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if waiting := s.waits[key]; waiting != nil && !s.isMute {
		delete(s.waits, key)
		waiting.replies <- nil
	}
}

func (s *sessionServer) speak() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isMute = false
}

func (s *sessionServer) isWaiting(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waits[key] != nil
}

// is checks which connection got a key.
func (s *sessionServer) is(t *testing.T, key string, number int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got, ok := s.of[key]; !ok || got != number {
		t.Errorf("connection %d got %s, not %d", got, key, number)
	}
}

func (s *sessionServer) isClosed(number int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.conns[number].closed:
		return true
	default:
		return false
	}
}

func (c *sessionConn) Send(words []any) error {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	key := words[1]
	if words[0] == "LOCK.MACQUIRE" {
		key = words[2]
	}
	s.copies[key]++
	reply, isError := s.replies[key]
	delete(s.replies, key)
	switch {
	case words[0] == "SUBSCRIBE":
		c.replies <- []any{"subscribe", key, int64(1)}
	case !slices.Contains(words, any("SESSION")) || slices.Contains(words, any("NOTIFY")):
		c.replies <- driver.ReplyError("WRONGTYPE this connection is for sessions that block")
	case isError:
		c.replies <- driver.ReplyError(reply)
	case !s.busy[key]:
		s.of[key] = c.number
		c.replies <- int64(7)
	case slices.Contains(words, any("WAIT")):
		s.waits[key] = c
	default:
		c.replies <- nil
	}
	return nil
}

func (c *sessionConn) Receive() (any, error) {
	select {
	case reply := <-c.replies:
		if err, isError := reply.(driver.ReplyError); isError {
			return nil, err
		}
		return reply, nil
	case <-c.closed:
		return nil, io.EOF
	}
}

func (c *sessionConn) Close() error {
	c.closing.Do(func() { close(c.closed) })
	return nil
}

// sessionLock describes a session lock that waits.
func sessionLock(locks *Locks, key string) *Lock {
	return locks.Lock(key, time.Minute, Session(), Wait(time.Minute))
}

// acquiredIn acquires a lock, and keeps its Held until the test ends.
func acquiredIn(t *testing.T, ctx context.Context, lock *Lock) *Held {
	t.Helper()
	held, err := lock.Acquire(ctx)
	mustNot(t, err)
	t.Cleanup(func() { runtime.KeepAlive(held) })
	return held
}

func kept(t *testing.T, lock *Lock) *Held {
	t.Helper()
	return acquiredIn(t, context.Background(), lock)
}

func TestSessionLocksInScopesShareAConnection(t *testing.T) {
	fake := newSessionServer()
	locks := opened(t, fake)
	mustNot(t, sessionLock(locks, "a").Do(context.Background(), func(ctx context.Context) error {
		return locks.Lock("other", time.Minute).Do(ctx, func(ctx context.Context) error {
			return sessionLock(locks, "b").Do(ctx, func(ctx context.Context) error {
				kept(t, sessionLock(locks, "another caller"))
				acquiredIn(t, ctx, sessionLock(opened(t, fake), "another manager"))
				acquiredIn(t, ctx, sessionLock(locks, "c"))
				return nil
			})
		})
	}))
	for key, number := range map[string]int{"a": 0, "b": 0, "c": 0, "another caller": 1, "another manager": 2} {
		fake.is(t, key, number)
	}
}

// Two goroutines in one scope may wait for each other, which is not a deadlock.
func TestAConnectionThatHasALockFromElsewhereIsNotShared(t *testing.T) {
	fake := newSessionServer()
	locks := opened(t, fake)
	mustNot(t, sessionLock(locks, "a").Do(context.Background(), func(ctx context.Context) error {
		held := acquiredIn(t, ctx, sessionLock(locks, "b")) // somewhere in the scope
		acquiredIn(t, ctx, sessionLock(locks, "c"))
		acquiredIn(t, held.Context(ctx), sessionLock(locks, "d"))
		acquiredIn(t, ctx, sessionLock(locks, "e"))
		return nil
	}))
	for key, number := range map[string]int{"a": 0, "b": 0, "c": 1, "d": 0, "e": 2} {
		fake.is(t, key, number)
	}
}

func TestTheLocksOfASessionShareAConnectionUntilTheLastOneEnds(t *testing.T) {
	fake := newSessionServer()
	locks := opened(t, fake)
	session := locks.Session()
	kinds := []*Lock{
		session.Lock("a", time.Minute), session.Shared("b", time.Minute), session.Limit("c", 2, time.Minute),
		session.AllOf([]string{"d"}, time.Minute), session.Recover("e", time.Minute),
	}
	var holds []*Held
	for _, lock := range kinds {
		holds = append(holds, kept(t, lock))
	}
	kept(t, locks.Session().Lock("f", time.Minute))
	for key, number := range map[string]int{"a": 0, "b": 0, "c": 0, "d": 0, "e": 0, "f": 1} {
		fake.is(t, key, number)
	}
	for _, held := range holds {
		if fake.isClosed(0) {
			t.Error("the connection was closed before its last lock ended")
		}
		mustNot(t, held.Release(context.Background()))
	}
	if !fake.isClosed(0) || locks.engine.sessions.count() != 1 || len(session.own) != 0 {
		t.Error("the connection is not closed with its last lock")
	}
	kept(t, kinds[0])
	fake.is(t, "a", 2)
}

func TestACancelledWaitKeepsTheLocksOfItsSession(t *testing.T) {
	fake := newSessionServer()
	fake.busy["b"], fake.isMute = true, true
	locks := opened(t, fake)
	session := locks.Session()
	held := kept(t, session.Lock("a", time.Minute))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		_, err := session.Lock("b", time.Minute, Wait(Forever)).Acquire(ctx)
		ended <- err
	}()
	eventually(t, "it waits", func() bool { return fake.isWaiting("b") })
	kept(t, session.Lock("during the wait", time.Minute))
	cancel()
	mustKind(t, <-ended, context.Canceled)
	fake.awaits(t, "LOCK.CANCEL", 1)
	last := kept(t, session.Lock("before the reply", time.Minute))
	fake.is(t, "during the wait", 1)
	fake.is(t, "before the reply", 1)
	mustNot(t, last.Release(context.Background()))
	fake.speak()
	fake.endWait("b")
	eventually(t, "the connection is free", func() bool {
		again := kept(t, session.Lock("after the reply", time.Minute))
		defer func() { mustNot(t, again.Release(context.Background())) }()
		fake.mu.Lock()
		defer fake.mu.Unlock()
		return fake.of["after the reply"] == 0
	})
	mustNot(t, held.Check())
	if len(fake.conns) != 2 || fake.copies["b"] != 1 {
		t.Errorf("%d connections were opened, and %d copies were sent", len(fake.conns), fake.copies["b"])
	}
}

func TestASessionAttemptBlocksOnceTheModuleIsBack(t *testing.T) {
	fake := newSessionServer()
	fake.busy["b"] = true
	locks := opened(t, fake)
	locks.engine.missedUntil.Store(1) // it was missing, and is due to be tried again
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		_, err := sessionLock(locks, "b").Acquire(ctx)
		ended <- err
	}()
	eventually(t, "it waits", func() bool { return fake.isWaiting("b") })
	cancel()
	mustKind(t, <-ended, context.Canceled)
}

func TestALockWhoseSessionEndsBeforeItIsKnownIsLost(t *testing.T) {
	sessions := opened(t, newSessionServer()).engine.sessions
	r := newRequest([]string{"a"}, time.Minute, one, nil, []Option{Session()})
	taken, err := sessions.take(context.Background(), r)
	mustNot(t, err)
	taken.close()
	eventually(t, "the session is gone", func() bool { return sessions.count() == 0 })
	h := newHold(sessions.engine, r, &grant{token: 7, sent: now(), session: taken}, now())
	sessions.keep(h)
	mustKind(t, h.check(), ErrLost)
}

// An attempt that has the connection for itself closes it when it is cancelled.
func TestACancelledWaitOfAFreshSessionLeavesNothing(t *testing.T) {
	fake := newSessionServer()
	fake.busy["b"], fake.isMute = true, true
	locks := opened(t, fake)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err := sessionLock(locks, "b").Acquire(ctx)
	mustKind(t, err, context.Canceled)
	if !fake.isClosed(0) {
		t.Error("its connection is open")
	}
	eventually(t, "no session is left", func() bool { return locks.engine.sessions.count() == 0 })
}

func TestASessionIsLostIfAReplyNeverComes(t *testing.T) {
	for _, closes := range []bool{false, true} {
		fake := newSessionServer()
		fake.busy["b"], fake.isMute = true, true
		wait := 100 * time.Millisecond
		if closes {
			wait = time.Hour
		}
		locks := opened(t, fake, WithTimeout(wait))
		session := locks.Session()
		held := kept(t, session.Lock("a", time.Minute))
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(20*time.Millisecond, cancel)
		_, err := session.Lock("b", time.Minute, Wait(wait)).Acquire(ctx)
		mustKind(t, err, context.Canceled)
		if closes {
			mustNot(t, held.Check())
			locks.Close()
		}
		<-held.Done()
		mustKind(t, held.Check(), ErrLost)
		eventually(t, "no session is left", func() bool { return locks.engine.sessions.count() == 0 })
	}
}

func TestASessionIsClosedIfItsServerHasChangedItsRole(t *testing.T) {
	for code, isClosed := range map[string]bool{
		"READONLY": true, "MASTERDOWN": true, "LOADING": true, "UNBLOCKED": true,
		"BUSY": false, "OOM": false, "TRYAGAIN": false, "CLUSTERDOWN": false,
	} {
		fake := newSessionServer()
		session := opened(t, fake).Session()
		held := kept(t, session.Lock("a", time.Minute))
		fake.replies["b"] = code + " for some reason"
		kept(t, session.Lock("b", time.Minute))
		if fake.isClosed(0) != isClosed {
			t.Errorf("after %s the connection is closed: %v", code, !isClosed)
		}
		if isClosed {
			<-held.Done()
			fake.is(t, "b", 1)
		} else {
			mustNot(t, held.Check())
			fake.is(t, "b", 0)
		}
	}
}

func TestADeadlockLeavesTheSessionAsItWas(t *testing.T) {
	fake := newSessionServer()
	session := opened(t, fake).Session()
	held := kept(t, session.Lock("a", time.Minute))
	fake.replies["b"] = "DEADLOCK the holder of the key waits"
	_, err := session.Lock("b", time.Minute, Wait(time.Minute)).Acquire(context.Background())
	mustKind(t, err, ErrDeadlock)
	mustNot(t, held.Check())
	kept(t, session.Lock("b", time.Minute))
	fake.is(t, "b", 0)
}

// The EXTEND after a long wait goes over the application's connections, so an error says nothing about the session.
func TestAnExtendThatFailsLeavesTheSessionAsItWas(t *testing.T) {
	fake := newSessionServer()
	fake.busy["b"] = true
	extensions := 0
	usual := fake.reply
	fake.reply = func(words []any) (any, error) {
		if words[0] == "LOCK.EXTEND" {
			if extensions++; extensions == 1 {
				return nil, driver.ReplyError("TRYAGAIN a slot moves")
			}
		}
		return usual(words)
	}
	locks := opened(t, fake)
	ended := make(chan *Held)
	go func() {
		held, err := locks.Lock("b", 150*time.Millisecond, Session(), Wait(Forever)).Acquire(context.Background())
		if err != nil {
			t.Error(err)
		}
		ended <- held
	}()
	eventually(t, "it waits", func() bool { return fake.isWaiting("b") })
	time.Sleep(60 * time.Millisecond)
	fake.mu.Lock()
	fake.waits["b"].replies <- int64(7)
	fake.mu.Unlock()
	held := <-ended
	if own := held.hold.session; own == nil || !own.isOpen() || extensions < 2 {
		t.Errorf("after %d copies of EXTEND the session is %v", extensions, own)
	}
}

// sessionCluster moves the key b to its second server when its map is reloaded.
type sessionCluster struct {
	*sessionServer
	hasMoved bool
}

func (c *sessionCluster) NodeAt(context.Context, string) (driver.Node, error) {
	return c.node("b"), nil
}

func (c *sessionCluster) Refresh(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hasMoved = true
	return nil
}

func TestASessionAttemptFollowsItsKeyToAnotherServer(t *testing.T) {
	second := newSessionServer()
	first := newSessionServer()
	cluster := &sessionCluster{sessionServer: first}
	first.node = func(key string) driver.Node {
		first.mu.Lock()
		defer first.mu.Unlock()
		if key == "b" && cluster.hasMoved || key == "c" {
			return second
		}
		return first
	}
	session := opened(t, cluster).Session()
	held := kept(t, session.Lock("a", time.Minute))
	first.replies["b"] = "MOVED 3300 127.0.0.1:1"
	kept(t, session.Lock("b", time.Minute))
	kept(t, session.Lock("c", time.Minute))
	mustNot(t, held.Check())
	second.is(t, "b", 0)
	second.is(t, "c", 0)
	kept(t, session.Lock("d", time.Minute))
	first.is(t, "d", 0)
}

func TestADroppedSessionLockClosesTheConnectionWithTheLastOne(t *testing.T) {
	fake := newSessionServer()
	session := opened(t, fake).Session()
	if _, err := session.Lock("a", time.Minute).Acquire(context.Background()); err != nil {
		t.Fatal(err)
	}
	other := kept(t, session.Lock("b", time.Minute))
	holds := func() int {
		runtime.GC()
		sessions := session.locks.engine.sessions
		sessions.mu.Lock()
		defer sessions.mu.Unlock()
		return len(session.own[0].holds)
	}
	eventually(t, "the first hold is gone", func() bool { return holds() == 1 })
	if fake.isClosed(0) {
		t.Error("the connection was closed")
	}
	mustNot(t, other.Release(context.Background()))
	if !fake.isClosed(0) {
		t.Error("the connection is open")
	}
}

// adapters open clients of a server for both libraries.
var adapters = map[string]func(address string) driver.Client{
	"go-redis": func(address string) driver.Client {
		return goredis.New(goredislib.NewClient(&goredislib.Options{Addr: address}))
	},
	"redigo": func(address string) driver.Client {
		return redigo.New(&redis.Pool{MaxIdle: 4, DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", address)
		}})
	},
}

func TestScopesThatWaitForEachOtherGetADeadlock(t *testing.T) {
	for name, open := range adapters {
		t.Run(name, func(t *testing.T) {
			address := server.Start(t)
			one, other := opened(t, open(address)), opened(t, open(address))
			ended := make(chan error)
			err := sessionLock(one, "a").Do(context.Background(), func(outer context.Context) error {
				err := sessionLock(other, "b").Do(context.Background(), func(ctx context.Context) error {
					go func() { ended <- sessionLock(one, "b").Do(outer, func(context.Context) error { return nil }) }()
					eventually(t, "it waits", func() bool { return one.engine.sessions.count() == 1 && hasWaiter(t, other, "b") })
					err := sessionLock(other, "a").Do(ctx, func(context.Context) error { return nil })
					mustKind(t, err, ErrDeadlock)
					return FromContext(ctx).Check()
				})
				return errors.Join(err, <-ended)
			})
			mustNot(t, err)
		})
	}
}

func hasWaiter(t *testing.T, locks *Locks, key string) bool {
	t.Helper()
	reply, err := locks.engine.router.call(context.Background(), key, []any{"LOCK.INFO", key}, time.Minute)
	mustNot(t, err)
	return fieldsOf(reply)["waiters"] == int64(1)
}

func TestGoroutinesInAScopeMayWaitForEachOther(t *testing.T) {
	locks := opened(t, adapters["go-redis"](server.Start(t)))
	mustNot(t, sessionLock(locks, "a").Do(context.Background(), func(ctx context.Context) error {
		var all sync.WaitGroup
		for range 4 {
			all.Add(1)
			go func() {
				defer all.Done()
				work := func(context.Context) error {
					time.Sleep(20 * time.Millisecond)
					return nil
				}
				err := sessionLock(locks, "x").Do(ctx, work)
				held, failure := sessionLock(locks, "y").Acquire(ctx)
				if err != nil || failure != nil {
					t.Error(err, failure)
					return
				}
				if err := errors.Join(work(ctx), held.Release(ctx)); err != nil {
					t.Error(err)
				}
			}()
		}
		all.Wait()
		return nil
	}))
}

func TestACallerOfASessionCannotWaitForItself(t *testing.T) {
	session := opened(t, adapters["go-redis"](server.Start(t))).Session()
	held := kept(t, session.Lock("a", time.Minute))
	_, err := session.Lock("a", time.Minute, Wait(time.Minute)).Acquire(context.Background())
	mustKind(t, err, ErrDeadlock)
	mustNot(t, held.Release(context.Background()))
}

func TestManyCancelledWaitsKeepTheLocksOfASession(t *testing.T) {
	for name, open := range adapters {
		t.Run(name, func(t *testing.T) {
			address := server.Start(t)
			locks := opened(t, open(address))
			theirs := kept(t, opened(t, open(address)).Lock("b", time.Hour))
			session := locks.Session()
			held := kept(t, session.Lock("a", time.Hour))
			for range 100 {
				ctx, cancel := context.WithTimeout(context.Background(), rand.N(30*time.Millisecond))
				_, err := session.Lock("b", time.Minute, Wait(time.Minute)).Acquire(ctx)
				mustKind(t, err, context.DeadlineExceeded)
				cancel()
			}
			mustNot(t, held.Check())
			mustNot(t, theirs.Release(context.Background()))
			mustNot(t, kept(t, session.Lock("b", time.Minute, Wait(time.Minute))).Release(context.Background()))
			eventually(t, "only one connection is left", func() bool { return locks.engine.sessions.count() == 1 })
			mustNot(t, held.Release(context.Background()))
			leavesNothing(t, locks.engine)
		})
	}
}
