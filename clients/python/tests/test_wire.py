"""Calls to a server that hangs up: each gets an answer, so that renewals keep trying."""

import socket
import threading
import unittest
from functools import partial

import redis

from serverlock import Locks
from serverlock.core.wire import ConnectionLost, reply_error
from serverlock.threads.runtime import run


class HangsUp(unittest.TestCase):
    def setUp(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(self.listener.close)
        threading.Thread(target=self.hang_up, daemon=True).start()
        self.port = self.listener.getsockname()[1]

    def hang_up(self) -> None:
        while True:
            try:
                self.listener.accept()[0].close()
            except OSError:
                return

    def test_each_call_in_a_batch_fails_and_nothing_is_raised(self) -> None:
        for patience in (None, 0.2, 30):
            locks = Locks(redis.Redis(port=self.port, socket_timeout=patience), timeout=1)
            wire = locks._engine().wire
            replies = run(partial(wire.batch, [(b"a", ("PING",)), (b"b", ("PING",))], 1))
            self.assertEqual([type(reply) for reply in replies], [ConnectionLost, ConnectionLost], patience)


class Errors(unittest.TestCase):
    def test_the_code_is_found_where_the_library_strips_it(self) -> None:
        parse = redis._parsers.base.BaseParser.parse_error
        for text, code in {
            "ERR NOTIFY and SNOTIFY need Redis 7.0 or later, or any version of Valkey": "ERR",
            "ERR lease is not a whole number": "ERR",
            "BUSYLOCKS 64 waits for several keys already use this id": "BUSYLOCKS",
            "NOPERM this user has no permission": "NOPERM",
            "READONLY this server is a replica": "READONLY",
            "WRONGTYPE Operation against a key": "WRONGTYPE",
        }.items():
            read = reply_error(parse(text))
            self.assertEqual((read.code, str(read)), (code, text))


if __name__ == "__main__":
    unittest.main()
