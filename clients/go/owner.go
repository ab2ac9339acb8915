package serverlock

import (
	"fmt"
	"os"
	"strings"
	"sync"
)

const longestOwner = 128

// hostAndPID is the owner of a lock whose caller names none, so that operators see which process holds it.
var hostAndPID = sync.OnceValue(func() string {
	host, _ := os.Hostname()
	return label(host, os.Getpid())
})

func label(host string, pid int) string {
	visible := strings.Map(func(letter rune) rune {
		if letter < '!' || letter > '~' {
			return '?'
		}
		return letter
	}, host)
	process := fmt.Sprintf(":%d", pid)
	return visible[:min(len(visible), longestOwner-len(process))] + process
}
