"""A server as a child of this process."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from .programs import StrPath, command_line, free_port, module_path

READY = "Ready to accept connections"
# glibc says "Address already in use", musl "Address in use".
IN_USE = " in use"
# Another program can take a port between the moment that it is free and the server's start.
ATTEMPTS = 5
DEADLINE = 60.0


class ServerFailed(Exception):
    """The server did not start; the message ends with its log."""


class Server:
    """A server with the module, on a free port of 127.0.0.1. It runs until `stop`, and keeps no data."""

    def __init__(self, *options: str, server: StrPath | None = None, port: int | None = None) -> None:
        """Starts it: `server` instead of the one that `find_server` finds, with more options, such as `--maxmemory`."""
        self._folder = tempfile.mkdtemp(prefix="serverlock-")
        try:
            for _ in range(ATTEMPTS):
                self.port = port or free_port()
                self._start(server, options)
                if self._is_ready():
                    return
                if port or not any(IN_USE in line for line in self._log):
                    break
            raise ServerFailed("the server did not start:\n" + "".join(self._log))
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        """For clients, as in `redis.Redis.from_url(server.url)`."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """The newest lines of the server's log."""
        return "".join(self._log)

    def flush(self) -> None:
        """Removes all keys and locks."""
        with socket.create_connection(("127.0.0.1", self.port), DEADLINE) as connection:
            connection.sendall(b"*1\r\n$8\r\nFLUSHALL\r\n")
            reply = connection.makefile("rb").readline()
        if reply != b"+OK\r\n":
            raise ServerFailed(f"FLUSHALL replied {reply.decode(errors='replace').strip() or 'nothing'}")

    def stop(self) -> None:
        """Ends the server and removes its files. A second call does nothing."""
        process = getattr(self, "_process", None)
        if process:
            process.terminate()
            try:
                process.wait(DEADLINE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._reader.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self, server: StrPath | None, options: Sequence[str]) -> None:
        command = command_line(server, self._module(), self.port, self._folder, options)
        self._log: deque[str] = deque(maxlen=200)
        self._changed = threading.Condition()
        self._ended = False
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        # The pipe is read until the end, or the server would block once it is full.
        self._reader = threading.Thread(target=self._read, name="serverlock-server log", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        with self._process.stdout as lines:
            for line in lines:
                with self._changed:
                    self._log.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _is_ready(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._says_ready(), DEADLINE)
            return self._says_ready() and not self._ended

    def _says_ready(self) -> bool:
        return any(READY in line for line in self._log)

    def _module(self) -> Path:
        """Servers refuse a module that is not executable, and some installers drop that permission."""
        module = module_path()
        if os.access(module, os.X_OK):
            return module
        copy = Path(self._folder, module.name)
        shutil.copyfile(module, copy)
        copy.chmod(0o755)
        return copy
