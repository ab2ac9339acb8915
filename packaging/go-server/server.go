// Package lockserver starts a Redis or Valkey server with the redis-lock module, for tests.
//
// The environment variable REDIS_LOCK_MODULE names the module, or a release archive that contains it. The server is the
// redis-server or valkey-server in the PATH, or the program that REDIS_SERVER names.
package lockserver

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	moduleFile = "libredis_lock.so"
	ready      = "Ready to accept connections"
	// glibc says "Address already in use", musl "Address in use".
	inUse    = " in use"
	deadline = time.Minute
	// Another program can take a port between the moment that it is free and the server's start.
	attempts = 5
	logLines = 200
)

// Server is a server with the module, on a free port of 127.0.0.1. It keeps no data.
type Server struct {
	// Port is the server's port.
	Port int
	// Addr is the address for clients, such as 127.0.0.1:40123.
	Addr string

	command *exec.Cmd
	ended   chan struct{}
	isReady chan struct{}
	mutex   sync.Mutex
	log     []string
}

// Start starts a server with more options, such as "--maxmemory", "100mb". It ends with the test. If the server does
// not start, the test fails with the server's log.
func Start(tb testing.TB, options ...string) *Server {
	tb.Helper()
	program, err := find()
	if err != nil {
		tb.Fatal(err)
	}
	folder := tb.TempDir()
	module, err := module(folder)
	if err != nil {
		tb.Fatal(err)
	}
	for attempt := 1; ; attempt++ {
		server, err := start(program, module, folder, options)
		if err == nil {
			tb.Cleanup(server.stop)
			return server
		}
		if attempt == attempts || !strings.Contains(err.Error(), inUse) {
			tb.Fatal(err)
		}
	}
}

// Flush removes all keys and locks.
func (s *Server) Flush(tb testing.TB) {
	tb.Helper()
	connection, err := net.DialTimeout("tcp", s.Addr, deadline)
	if err != nil {
		tb.Fatal(err)
	}
	defer connection.Close()
	if _, err := io.WriteString(connection, "*1\r\n$8\r\nFLUSHALL\r\n"); err != nil {
		tb.Fatal(err)
	}
	if reply, err := bufio.NewReader(connection).ReadString('\n'); reply != "+OK\r\n" {
		tb.Fatalf("FLUSHALL replied %q (%v)", reply, err)
	}
}

// Log has the newest lines of the server's log.
func (s *Server) Log() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return strings.Join(s.log, "\n")
}

func start(program, module, folder string, options []string) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	arguments := []string{
		"--port", strconv.Itoa(port), "--dir", folder, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
		"--loadmodule", module,
	}
	// The options come last, so they replace these defaults.
	command := exec.Command(program, append(arguments, options...)...)
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	command.Stderr = command.Stdout
	server := &Server{
		Port: port, Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), command: command,
		ended: make(chan struct{}), isReady: make(chan struct{}),
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	go server.read(output)
	select {
	case <-server.isReady:
		return server, nil
	case <-server.ended:
	case <-time.After(deadline):
		server.stop()
	}
	return nil, fmt.Errorf("the server did not start:\n%s", server.Log())
}

// read keeps the log until the server ends.
func (s *Server) read(output io.Reader) {
	var once sync.Once
	for lines := bufio.NewScanner(output); lines.Scan(); {
		s.mutex.Lock()
		s.log = append(s.log, lines.Text())
		s.log = s.log[max(0, len(s.log)-logLines):]
		s.mutex.Unlock()
		if strings.Contains(lines.Text(), ready) {
			once.Do(func() { close(s.isReady) })
		}
	}
	// It has an exit status that says nothing more than the log.
	_ = s.command.Wait()
	close(s.ended)
}

func (s *Server) stop() {
	_ = s.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(deadline):
		_ = s.command.Process.Kill()
		<-s.ended
	}
}

func find() (string, error) {
	if named := os.Getenv("REDIS_SERVER"); named != "" {
		return exec.LookPath(named)
	}
	for _, name := range []string{"redis-server", "valkey-server"} {
		if found, err := exec.LookPath(name); err == nil {
			return found, nil
		}
	}
	return "", errors.New("neither redis-server nor valkey-server is in the PATH; REDIS_SERVER can name another program")
}

func freePort() (int, error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer free.Close()
	return free.Addr().(*net.TCPAddr).Port, nil
}

// module copies the module into the folder, executable: servers refuse any other.
func module(folder string) (string, error) {
	named := os.Getenv("REDIS_LOCK_MODULE")
	if named == "" {
		return "", errors.New("REDIS_LOCK_MODULE has to name libredis_lock.so, or a release archive that contains it")
	}
	file, err := os.Open(named)
	if err != nil {
		return "", err
	}
	defer file.Close()
	source := io.Reader(file)
	if strings.HasSuffix(named, ".tar.gz") {
		if source, err = inArchive(file); err != nil {
			return "", fmt.Errorf("%s: %w", named, err)
		}
	}
	copied, err := os.OpenFile(filepath.Join(folder, moduleFile), os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(copied, source)
	return copied.Name(), errors.Join(err, copied.Close())
}

func inArchive(file io.Reader) (io.Reader, error) {
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the archive does not contain " + moduleFile)
		}
		if err != nil {
			return nil, err
		}
		if path.Base(header.Name) == moduleFile {
			return archive, nil
		}
	}
}
