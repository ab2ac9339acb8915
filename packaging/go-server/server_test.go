package lockserver

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// call returns the first line of the reply to a command.
func call(t *testing.T, addr, command string) string {
	t.Helper()
	connection, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	fmt.Fprintf(connection, "%s\r\n", command)
	reply, err := bufio.NewReader(connection).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(reply)
}

func TestAServerHasTheModuleAndEndsWithItsTest(t *testing.T) {
	var addr string
	t.Run("server", func(t *testing.T) {
		server := Start(t, "--databases", "3")
		addr = server.Addr
		if reply := call(t, addr, "LOCK.ACQUIRE k EX 60 ID 1"); !strings.HasPrefix(reply, ":") {
			t.Error(reply)
		}
		if reply := call(t, addr, "SELECT 3"); !strings.HasPrefix(reply, "-ERR") {
			t.Error(reply)
		}
		server.Flush(t)
		if reply := call(t, addr, "EXISTS k"); reply != ":0" {
			t.Error(reply)
		}
	})
	if connection, err := net.Dial("tcp", addr); err == nil {
		connection.Close()
		t.Error("the server still runs")
	}
}

func TestAServerThatFailsShowsItsLog(t *testing.T) {
	folder := t.TempDir()
	module, err := module(folder)
	if err != nil {
		t.Fatal(err)
	}
	program, err := find()
	if err != nil {
		t.Fatal(err)
	}
	_, err = start(program, module, folder, []string{"--there-is-no-such-option", "1"})
	if err == nil || !strings.Contains(err.Error(), "there-is-no-such-option") {
		t.Error(err)
	}
}

func TestAMissingServerOrModuleIsNamed(t *testing.T) {
	t.Setenv("REDIS_SERVER", "no-such-server")
	if _, err := find(); err == nil || !strings.Contains(err.Error(), "no-such-server") {
		t.Error(err)
	}
	t.Setenv("REDIS_LOCK_MODULE", "")
	if _, err := module(t.TempDir()); err == nil || !strings.Contains(err.Error(), "REDIS_LOCK_MODULE") {
		t.Error(err)
	}
	empty := filepath.Join(t.TempDir(), "empty.tar.gz")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("REDIS_LOCK_MODULE", empty)
	if _, err := module(t.TempDir()); err == nil || !strings.Contains(err.Error(), "empty.tar.gz") {
		t.Error(err)
	}
}
