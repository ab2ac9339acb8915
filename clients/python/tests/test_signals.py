"""A signal handler that raises, at every point in an attempt where Python runs one."""

import sys
import unittest
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

import redis
import valkey

from scenarios.once import DAY, far_from_the_end, is_kept
from served import Served
from serverlock import Locks
from servers import until


class SoftTimeLimit(Exception):
    """Like the one that task queues raise."""


class Interruption:
    """Raises at one of the points where Python runs signal handlers: at a function's start, and after a C function.

    A profiler is called there, and can raise. `at` counts these points.
    """

    def __init__(self, at: int) -> None:
        self._left = at
        self.place = ""

    def __enter__(self) -> "Interruption":
        sys.setprofile(self._step)
        return self

    def __exit__(self, *exception: object) -> None:
        sys.setprofile(None)

    def _step(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" or event == "c_return":
            self._left -= 1
            if self._left == 0:
                sys.setprofile(None)
                self.place = f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
                raise SoftTimeLimit


class Protocol(int):
    """The protocol's number, which interrupts the next caller that converts it."""

    interrupts = False

    def __int__(self) -> int:
        if Protocol.interrupts:
            Protocol.interrupts = False
            raise SoftTimeLimit
        return 2


class Signals(Served):
    def warm(self, client: Any) -> Locks:
        locks = self.opened(client)
        locks.lock("warm", 30).acquire().release()
        return locks

    def interrupt_everywhere(
        self, client: Any, attempt: Callable[[Locks, str], None], is_kept: Callable[[str], bool] = lambda _: False
    ) -> None:
        """is_kept: whether the lock is meant to be held afterwards."""
        locks, pool, keys, number = self.warm(client), client.connection_pool, [], 0
        ignored = sys.unraisablehook
        self.addCleanup(setattr, sys, "unraisablehook", ignored)
        sys.unraisablehook = lambda _: None  # from the library's finalizers
        while True:
            number += 1
            key = f"key {number}"
            with pool._lock:
                for connection in pool._available_connections:
                    connection.disconnect()  # so that the attempt opens one
            raised: BaseException | None = None
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("ignore")
                warnings.filterwarnings("always", "coroutine .* was never awaited")
                try:
                    with Interruption(number) as interruption:
                        attempt(locks, key)
                except BaseException as error:
                    raised = error.with_traceback(None)  # a traceback keeps the functions' variables alive
            if not interruption.place:
                break
            # The library ignores exceptions in its finalizers and while it closes a connection.
            self.assertIsInstance(raised, SoftTimeLimit | None, interruption.place)
            self.assertEqual([str(it.message) for it in warned], [], interruption.place)
            keys.append(key)
        self.assertGreater(number, 100)
        for key in keys:
            until(f"{key} is free", lambda key=key: self.conn.info(key)["state"] == "free" or is_kept(key))

    def test_a_tick_is_kept_or_free_wherever_its_caller_is_interrupted(self) -> None:
        end, done = far_from_the_end(self.conn), set[str]()

        def attempt(locks: Locks, key: str) -> None:
            with locks.once(key, DAY, lease=300):
                done.add(key)

        self.interrupt_everywhere(
            redis.Redis(port=self.server.port, protocol=2, max_connections=10_000),
            attempt,
            lambda key: key in done and is_kept(self.conn, key, end),
        )
        self.assertGreater(len(done), 20)

    def test_a_single_flight_may_be_interrupted_anywhere(self) -> None:
        def attempt(locks: Locks, key: str) -> None:
            locks.single_flight(key, 30, lambda _: b"value")
            self.assertEqual(len(locks._engine().flights), 0)

        self.interrupt_everywhere(redis.Redis(port=self.server.port, protocol=2), attempt)

    def test_a_scope_may_be_interrupted_anywhere_with_redis_py(self) -> None:
        self.interrupt_everywhere(redis.Redis(port=self.server.port, protocol=2), scope)

    def test_a_scope_may_be_interrupted_anywhere_with_valkey_py(self) -> None:
        self.interrupt_everywhere(valkey.Valkey(port=self.server.port), scope)

    def test_the_caller_gets_its_own_exception_when_that_makes_the_library_fail(self) -> None:
        """valkey-py reads the protocol in `finally`, even if an interruption has left it without a value."""
        client = valkey.Valkey(port=self.server.port, protocol=Protocol(2))
        locks = self.warm(client)
        client.connection_pool._available_connections.clear()
        Protocol.interrupts = True
        with self.assertRaises(SoftTimeLimit):
            locks.lock("a", 30).acquire()
        until("the lock is free", lambda: self.conn.info("a")["state"] == "free")


def scope(locks: Locks, key: str) -> None:
    with locks.lock(key, 30):
        pass


if __name__ == "__main__":
    unittest.main()
