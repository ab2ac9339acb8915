"""A plain connection to a server, to prepare scenarios and to check what clients did."""

import re
import socket
import time
from pathlib import Path

# The portable lock as a script, without the line that makes it a library.
SCRIPT = (Path(__file__).resolve().parents[2] / "portable/lock.lua").read_text("ascii").split("\n", 1)[1]
MARGIN_MS, RETENTION_MS = 1000, 60_000


class Refusal(Exception):
    """An error reply."""


class Connection:
    def __init__(self, port, *auth, host="127.0.0.1"):
        self._socket = socket.create_connection((host, port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")
        if auth:
            self.call("AUTH", *auth)

    def call(self, *words):
        """One exchange. UTF-8 texts are returned as str. Error replies raise Refusal."""
        self.send(*words)
        return self.read()

    def send(self, *words):
        packed = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        parts = [b"*%d\r\n" % len(packed), *(b"$%d\r\n%b\r\n" % (len(word), word) for word in packed)]
        self._socket.sendall(b"".join(parts))

    def read(self):
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server has closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            raise Refusal(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else _text(self._file.read(int(rest) + 2)[:-2])
        if kind == b"*":
            return None if rest == b"-1" else [self.read() for _ in range(int(rest))]
        raise ValueError(f"no reply begins with {line!r}")

    def monitored(self, seconds):
        """The lines of MONITOR in small letters, because libraries differ in how they send commands' names.

        Fails after `seconds`, or whoever waits for a line that never comes would read others forever.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            yield self.read().lower()
        raise AssertionError(f"not seen within {seconds} s")

    def map(self, *words):
        reply = self.call(*words)
        return dict(zip(reply[::2], reply[1::2], strict=True))

    def info(self, key):
        """The reply to LOCK.INFO, or that of the script where the module is not loaded."""
        try:
            return self.map("LOCK.INFO", key)
        except Refusal as error:
            if "unknown command" not in str(error):
                raise
        reply = self.script("lock_info", key)
        return dict(zip(reply[::2], reply[1::2], strict=True))

    def script(self, function, key, *args):
        """Calls a function of portable/lock.lua for a lock and its queue. Uses EVAL, so each EVALSHA is a package's."""
        return self.call("EVAL", SCRIPT, 2, key, queue_of(key), function, MARGIN_MS, RETENTION_MS, *args)

    def timeout(self, seconds):
        self._socket.settimeout(seconds)

    def close(self):
        self._file.close()
        self._socket.close()


def queue_of(key):
    """The name of a lock's queue: docs/PORTABLE.md."""
    return f"{key}:queue" if re.match(r"[^{]*\{[^}]+\}", key) else f"{key}:queue:{{{key}}}"


def _text(word):
    try:
        return word.decode()
    except UnicodeDecodeError:
        return word
