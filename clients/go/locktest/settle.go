package locktest

import (
	"bytes"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/serverlock"
)

// How long a goroutine may be busy before it is no longer waited for.
const patience = 10 * time.Second

var (
	// One caller settles at a time: two would each see that the other is running.
	settling sync.Mutex
	ignored  = map[string]bool{} // goroutines that were busy for too long
	engine   = []byte(reflect.TypeFor[serverlock.Locks]().PkgPath() + ".")
)

// settle returns once all other goroutines of the process are blocked. Then nothing happens until somebody moves a
// clock, or something arrives from outside the process. The runtime stops all goroutines to list them, so the list
// shows that exactly.
func settle() {
	settling.Lock()
	defer settling.Unlock()
	began := time.Now()
	var always []string // busy each time
	for tries := 0; ; tries++ {
		busy := slices.DeleteFunc(busyGoroutines(), func(id string) bool { return ignored[id] })
		if len(busy) == 0 {
			return
		}
		if tries == 0 {
			always = busy
		}
		always = slices.DeleteFunc(always, func(id string) bool { return !slices.Contains(busy, id) })
		if time.Since(began) > patience {
			for _, id := range always {
				ignored[id] = true
			}
			return
		}
		if tries < 10 {
			runtime.Gosched()
		} else {
			time.Sleep(min(time.Duration(tries)*10*time.Microsecond, time.Millisecond))
		}
	}
}

// busyGoroutines returns the numbers of all other goroutines that are not blocked.
func busyGoroutines() []string {
	var busy []string
	_, others, _ := bytes.Cut(stacks(), []byte("\n\n")) // the first is the caller's
	for stack := range bytes.SplitSeq(others, []byte("\n\n")) {
		// goroutine 18 [chan receive, 2 minutes]:
		head, frames, _ := bytes.Cut(stack, []byte("\n"))
		name, state, _ := strings.Cut(string(head), " [")
		if isBusy(state, frames) {
			busy = append(busy, name)
		}
	}
	return busy
}

func isBusy(state string, frames []byte) bool {
	for _, begins := range []string{"run", "preempted", "GC ", "garbage collection", "stopping the world", "wait for GC"} {
		if strings.HasPrefix(state, begins) {
			return true
		}
	}
	// Whoever starts a garbage collection waits for the list of goroutines to be complete, and then continues.
	if strings.HasPrefix(state, "semacquire") && !bytes.HasPrefix(frames, []byte("sync.runtime_Semacquire")) {
		return true
	}
	// The engine makes short system calls, for example when it logs.
	return strings.HasPrefix(state, "syscall") && bytes.Contains(frames, engine)
}

func stacks() []byte {
	for size := 64 << 10; ; size *= 2 {
		text := make([]byte, size)
		if length := runtime.Stack(text, true); length < size {
			return text[:length]
		}
	}
}
