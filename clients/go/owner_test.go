package serverlock

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTheOwnerIsThisHostAndProcess(t *testing.T) {
	locks := New(nobody{t})
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*request{
		locks.Lock("a", time.Second).request,
		locks.Leader("a", time.Second).request,
		locks.Once("a", time.Minute).request,
	} {
		words := r.acquire("7", 0, "").words()
		at := slices.Index(words, any("OWNER"))
		if want := fmt.Sprintf("%s:%d", host, os.Getpid()); at < 0 || words[at+1] != want {
			t.Errorf("%v does not name %s", words, want)
		}
	}
	if words := locks.Lock("a", time.Second, NoOwner()).request.acquire("7", 0, "").words(); slices.Contains(words, any("OWNER")) {
		t.Errorf("%v names an owner", words)
	}
}

func TestAHostNameBecomesAValidOwner(t *testing.T) {
	if got := label("web 1.ex\u00e4mple", 12); got != "web?1.ex?mple:12" {
		t.Error(got)
	}
	if got := label(strings.Repeat("h", 300), 12); got != strings.Repeat("h", 125)+":12" {
		t.Error(got)
	}
}
