// Package resp speaks RESP2 on a connection after a client library has done the handshake.
package resp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"

	"example.com/serverlock/driver"
)

const (
	longestBulk = 512 << 20
	longestList = 1 << 20
	deepest     = 16
)

// Pack encodes one command.
func Pack(words []any) ([]byte, error) {
	packed := size(make([]byte, 0, 256), '*', len(words))
	for _, word := range words {
		switch word := word.(type) {
		case string:
			packed = append(size(packed, '$', len(word)), word...)
		case []byte:
			packed = append(size(packed, '$', len(word)), word...)
		case int64:
			var digits [20]byte
			text := strconv.AppendInt(digits[:0], word, 10)
			packed = append(size(packed, '$', len(text)), text...)
		default:
			return nil, fmt.Errorf("a word is %T", word)
		}
		packed = append(packed, '\r', '\n')
	}
	return packed, nil
}

func size(packed []byte, kind byte, count int) []byte {
	return append(strconv.AppendInt(append(packed, kind), int64(count), 10), '\r', '\n')
}

// Reader reads replies.
type Reader struct {
	reader *bufio.Reader
}

// NewReader returns a Reader for one connection.
func NewReader(source io.Reader) *Reader { return &Reader{reader: bufio.NewReader(source)} }

// Read returns the next reply: nil, int64, string or []any. An error reply is a [driver.ReplyError]; after any other
// error the connection is unusable.
func (r *Reader) Read() (any, error) {
	return r.read(0)
}

func (r *Reader) read(depth int) (any, error) {
	line, err := r.line()
	if err != nil {
		return nil, err
	}
	if len(line) == 0 || depth > deepest {
		return nil, fmt.Errorf("no reply begins with %q", line)
	}
	rest := line[1:]
	switch line[0] {
	case '+':
		return rest, nil
	case '-':
		return nil, driver.ReplyError(rest)
	case ':':
		return strconv.ParseInt(rest, 10, 64)
	case '$':
		size, err := length(rest, longestBulk)
		if size < 0 || err != nil {
			return nil, err
		}
		bulk := make([]byte, size+2)
		if _, err := io.ReadFull(r.reader, bulk); err != nil {
			return nil, err
		}
		return string(bulk[:size]), nil
	case '*':
		size, err := length(rest, longestList)
		if size < 0 || err != nil {
			return nil, err
		}
		return r.list(size, depth)
	}
	return nil, fmt.Errorf("no reply begins with %q", line)
}

func (r *Reader) list(size, depth int) (any, error) {
	var list []any
	for range size {
		item, err := r.read(depth + 1)
		var reply driver.ReplyError
		if errors.As(err, &reply) {
			item = reply
		} else if err != nil {
			return nil, err
		}
		list = append(list, item)
	}
	if list == nil {
		list = []any{}
	}
	return list, nil
}

func (r *Reader) line() (string, error) {
	line, err := r.reader.ReadString('\n')
	if err != nil {
		return "", err
	}
	if len(line) < 2 || line[len(line)-2] != '\r' {
		return "", fmt.Errorf("a line ends with %q", line[max(0, len(line)-2):])
	}
	return line[:len(line)-2], nil
}

// length parses -1, or a size up to most.
func length(text string, most int) (int, error) {
	size, err := strconv.Atoi(text)
	if err != nil || size < -1 || size > most {
		return 0, fmt.Errorf("a length is %q", text)
	}
	return size, nil
}
