"""A relay between client and server that loses replies, withholds commands, swallows everything, delays, strands or cuts
connections.

Replies are identified by their command: `lose("LOCK.RELEASE")` lets the server run it, and withholds the reply.
"""

import socket
import threading
import time

from servers import free_port


class Relay:
    def __init__(self, port, delay=0.0):
        self._target, self._delay = port, delay
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._mutex = threading.Lock()
        self._pairs = []
        self._lose, self._is_black, self._is_down = None, False, False
        self._withheld = None
        self._stranded, self._has_ended = set(), False
        self.accepted = 0
        self.asked = 0  # how many times a client sent something
        self.lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def at(self):
        return {"kind": "single", "host": "127.0.0.1", "port": self.port}

    def lose(self, command, times=1, close=True):
        """Loses the next replies to this command: the connection is closed instead, or stays silent."""
        with self._mutex:
            self._lose = [_word(command), times, close]

    def black_hole(self, on=True):
        """Swallows everything in both directions, and keeps the connections open."""
        self._is_black = on

    def strand(self):
        """Makes the current connections half open: they swallow everything. New connections work."""
        with self._mutex:
            self._stranded.update(self._pairs)

    def withhold(self, command):
        """Makes each connection half open when it sends this command, which does not reach the server."""
        with self._mutex:
            self._withheld = _word(command)

    def heal(self):
        """Makes the half-open connections deliver everything that they swallowed."""
        with self._mutex:
            self._withheld = None
            self._stranded.clear()

    def down(self, on=True):
        """New connections are closed at once."""
        self._is_down = on
        if on:
            self.cut()

    def cut(self):
        """Closes all connections."""
        with self._mutex:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                _close(end)

    def open(self):
        with self._mutex:
            return len(self._pairs)

    def end(self):
        self._has_ended = True
        self._listener.close()
        self.cut()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            if self._is_down:
                _close(client)
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target), timeout=10)
            except OSError:
                _close(client)
                continue
            server.settimeout(None)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair, silent = (client, server), threading.Event()
            with self._mutex:
                self._pairs.append(pair)
            for source, target, asks in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pump, args=(pair, source, target, asks, silent), daemon=True).start()

    def _pump(self, pair, source, target, asks, silent):
        try:
            while data := source.recv(65536):
                if asks:
                    self._strand_if_withheld(pair, data)
                while (self._is_black or pair in self._stranded) and not self._has_ended:
                    time.sleep(0.01)
                if asks:
                    self.asked += 1
                    self._look(data, silent)
                elif silent.is_set():
                    with self._mutex:
                        self.lost += 1
                    if silent.close:
                        break
                    continue
                if self._delay:
                    time.sleep(self._delay)
                target.sendall(data)
        except OSError:
            pass
        with self._mutex:
            if pair in self._pairs:
                self._pairs.remove(pair)
        for end in pair:
            _close(end)

    def _strand_if_withheld(self, pair, data):
        with self._mutex:
            if self._withheld and self._withheld in data.upper():
                self._stranded.add(pair)

    def _look(self, data, silent):
        with self._mutex:
            if self._lose and self._lose[0] in data.upper():  # libraries write some commands in lower case
                silent.close = self._lose[2]
                silent.set()
                self._lose[1] -= 1
                if not self._lose[1]:
                    self._lose = None


def _word(command):
    """The whole word, because keys may contain a command's name."""
    return b"\r\n%b\r\n" % command.encode()


def _close(end):
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    end.close()


__all__ = ["Relay", "free_port"]
