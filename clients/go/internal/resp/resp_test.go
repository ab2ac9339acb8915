package resp

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"example.com/serverlock/driver"
)

func TestReplies(t *testing.T) {
	reader := NewReader(strings.NewReader("+OK\r\n:-7\r\n$-1\r\n$0\r\n\r\n$4\r\na\r\nb\r\n*-1\r\n*0\r\n" +
		"*3\r\n:1\r\n*1\r\n+x\r\n-ERR in a list\r\n-MOVED 1 x\r\n"))
	for _, want := range []any{
		"OK", int64(-7), nil, "", "a\r\nb", nil, []any{},
		[]any{int64(1), []any{"x"}, driver.ReplyError("ERR in a list")}, driver.ReplyError("MOVED 1 x"),
	} {
		got, err := reader.Read()
		var reply driver.ReplyError
		if errors.As(err, &reply) {
			got = reply
		} else if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%#v is not %#v", got, want)
		}
	}
	if _, err := reader.Read(); !errors.Is(err, io.EOF) {
		t.Errorf("the end is %v", err)
	}
}

func TestAMalformedReplyIsAnError(t *testing.T) {
	for _, bad := range []string{
		"", "+OK", "+OK\n", "\r\n", "?x\r\n", ":x\r\n", "$x\r\n", "$-2\r\n", "$999999999999\r\n", "$5\r\nab\r\n",
		"*x\r\n", "*2\r\n:1\r\n", "*9999999\r\n", strings.Repeat("*1\r\n", 100) + ":1\r\n",
	} {
		if got, err := NewReader(strings.NewReader(bad)).Read(); err == nil {
			t.Errorf("%q gives %v", bad, got)
		}
	}
}

func TestCommands(t *testing.T) {
	got, err := Pack([]any{"SET", []byte("a b"), int64(-12)})
	if want := "*3\r\n$3\r\nSET\r\n$3\r\na b\r\n$3\r\n-12\r\n"; string(got) != want || err != nil {
		t.Errorf("%q is not %q, %v", got, want, err)
	}
	if _, err := Pack([]any{3.5}); err == nil {
		t.Error("a float was packed")
	}
}
