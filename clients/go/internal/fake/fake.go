// Package fake provides a test server that sends the replies each test chooses.
package fake

import (
	"net"
	"sync"
	"testing"

	"example.com/serverlock/internal/resp"
)

// The reply Close closes the connection; the reply Silence sends nothing.
const (
	Close   = "close"
	Silence = ""
)

// Server counts the commands and connections it receives.
type Server struct {
	Address string
	answer  func(words []string) string

	mu       sync.Mutex
	commands map[string]int
	accepted int
}

// Start starts a server that replies to each command with the RESP2 bytes that answer returns.
func Start(t *testing.T, answer func(words []string) string) *Server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	s := &Server{Address: listener.Addr().String(), answer: answer, commands: map[string]int{}}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.accepted++
			s.mu.Unlock()
			go s.serve(conn)
		}
	}()
	return s
}

// Count returns how many times a command was sent.
func (s *Server) Count(command string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commands[command]
}

// Accepted returns the number of connections.
func (s *Server) Accepted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

func (s *Server) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	reader := resp.NewReader(conn)
	for {
		read, err := reader.Read()
		list, ok := read.([]any)
		if err != nil || !ok || len(list) == 0 {
			return
		}
		words := make([]string, len(list))
		for at, word := range list {
			words[at], _ = word.(string)
		}
		s.mu.Lock()
		s.commands[words[0]]++
		s.mu.Unlock()
		answer := s.answer(words)
		if answer == Close {
			return
		}
		if _, err := conn.Write([]byte(answer)); err != nil {
			return
		}
	}
}
