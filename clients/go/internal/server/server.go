// Package server starts servers for the tests of this module.
package server

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// module returns the path of the server's module. Outside the repository there is none, and the test is skipped.
func module(t testing.TB) string {
	t.Helper()
	path := os.Getenv("SERVERLOCK_MODULE")
	if path == "" {
		_, file, _, _ := runtime.Caller(0)
		path = filepath.Join(filepath.Dir(file), "../../../../target/release/libredis_lock.so")
		if _, err := os.Stat(path); err != nil {
			t.Skip("no module: set SERVERLOCK_MODULE")
		}
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return absolute
}

// Start starts a server for the test, with these module arguments, and returns its address.
func Start(t testing.TB, arguments ...string) string {
	t.Helper()
	words := append([]string{"--loadmodule", module(t)}, arguments...)
	return start(t, append(words, "--save", "", "--dir", t.TempDir(), "--bind", "127.0.0.1"), freePort)
}

// StartPlain starts a server without the module.
func StartPlain(t testing.TB) string {
	t.Helper()
	return start(t, []string{"--save", "", "--dir", t.TempDir(), "--bind", "127.0.0.1"}, freePort)
}

func freePort(t testing.TB) int {
	t.Helper()
	probe, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = probe.Close() }()
	return probe.Addr().(*net.TCPAddr).Port
}

// start starts a server with these words, on a port from free.
func start(t testing.TB, words []string, free func(testing.TB) int) string {
	t.Helper()
	binary := os.Getenv("REDIS_SERVER")
	if binary == "" {
		binary = "redis-server"
	}
	for range 5 { // another process may take the port first
		port := free(t)
		log := filepath.Join(t.TempDir(), "log")
		server := exec.Command(binary, append(words, "--port", fmt.Sprint(port), "--logfile", log)...)
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { _ = server.Wait(); close(ended) }()
		t.Cleanup(func() { _ = server.Process.Kill(); <-ended })
		address := fmt.Sprintf("127.0.0.1:%d", port)
		if answers(address, ended) {
			return address
		}
		text, _ := os.ReadFile(log)
		t.Logf("the server ended:\n%s", text)
	}
	t.Fatal("no server")
	return ""
}

func answers(address string, ended <-chan struct{}) bool {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if ping(address) {
			return true
		}
		select {
		case <-ended:
			return false
		default:
		}
	}
	return false
}

func ping(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	reply := make([]byte, 5)
	if _, err = conn.Write([]byte("PING\r\n")); err == nil {
		_, err = conn.Read(reply)
	}
	return err == nil && bytes.HasPrefix(reply, []byte("+PON"))
}
