"""Tests with a server of their own."""

import sys
import unittest
from pathlib import Path
from typing import Any

import redis

from serverlock import Locks

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "suite"))

from servers import Server


class Served(unittest.TestCase):
    """Each test has a server and a connection to it."""

    def setUp(self) -> None:
        self.server = Server()
        self.addCleanup(self.server.end)
        self.conn: Any = self.server.connect()
        self.addCleanup(self.conn.close)

    def opened(self, client: Any = None, **options: Any) -> Locks:
        """A manager over this client, or over one of its own."""
        locks = Locks(client or redis.Redis(port=self.server.port), **options)
        self.addCleanup(locks.close)
        return locks
