"""Weak references whose callbacks are interrupted by a signal handler: nothing stays, and no caller waits in vain."""

import gc
import sys
import threading
import unittest
from collections.abc import Callable, Hashable
from unittest import mock

from serverlock.core.flights import Flight, Flights
from serverlock.core.request import request_of
from serverlock.core.scopes import Scopes
from serverlock.core.weak import WeakMap
from serverlock.threads.runtime import Flag, Runtime, run


class Value:
    pass


class Weak(unittest.TestCase):
    def test_entries_without_a_value_are_absent_and_do_not_pile_up(self) -> None:
        map_: WeakMap[int, Value] = WeakMap()
        kept = Value()
        map_[-1] = kept
        for number in range(10_000):
            map_[number] = Value()
        gc.collect()
        self.assertEqual((len(map_), map_.values(), map_.get(-1), map_.get(9_999)), (1, [kept], kept, None))
        self.assertLess(len(map_._refs), 100)
        map_.pop(-1)
        map_.pop(-1)
        self.assertEqual(len(map_), 0)
        self.assertTrue(all(ref.__callback__ is None for ref in map_._refs.values()))


def steps(work: Callable[[], object]) -> int:
    """How many functions it calls."""
    events: list[str] = []
    sys.setprofile(lambda _frame, event, _arg: events.append(event))
    try:
        work()
    finally:
        sys.setprofile(None)
    return events.count("call") + events.count("c_call")


class Caller(Runtime):
    """A runtime whose caller the test names."""

    name: Hashable = 0

    def caller(self) -> Hashable:
        return self.name


class Scoped(unittest.TestCase):
    def test_an_acquisition_costs_the_same_beside_a_thousand_scopes(self) -> None:
        runtime, request = Caller(), request_of(["a"], 30)
        scopes, holds = Scopes(runtime), [Value() for _ in range(1_000)]
        costs = []
        for name, hold in enumerate(holds):
            runtime.name = name
            scopes.enter(hold)  # type: ignore[arg-type]
            runtime.name = -1
            costs.append(steps(lambda: scopes.held(request) if scopes else None))
        self.assertEqual(costs, [costs[0]] * len(costs))

    def test_a_caller_that_never_leaves_keeps_one_entry(self) -> None:
        runtime = Caller()
        scopes = Scopes(runtime)
        for _ in range(1_000):
            scopes.enter(Value())  # type: ignore[arg-type]
        gc.collect()
        self.assertLessEqual(len(scopes._by_caller[runtime.name]), 1)

    def test_callers_that_never_left_do_not_pile_up(self) -> None:
        scopes = Scopes(Runtime())
        for _ in range(1_000):
            thread = threading.Thread(target=lambda: scopes.enter(Value()))  # type: ignore[arg-type, return-value]
            thread.start()
            thread.join()
        gc.collect()
        self.assertEqual(len(scopes), 0)
        self.assertLess(len(scopes._by_caller), 100)


class Interrupted(unittest.TestCase):
    def test_a_caller_takes_its_turn_although_nobody_told_it(self) -> None:
        flights, request = Flights(Runtime()), request_of(["a"], 30, wait=600.0, result=True)
        turns: list[bytes | None] = []
        waits = threading.Event()

        class Watched(Flag):
            async def wait(self, timeout: float) -> bool:
                waits.set()
                return await super().wait(timeout)

        def call() -> None:
            second = flights.join(request)
            second.flag = Watched()
            turns.append(run(second.turn))

        # A handler ends the callback.
        with mock.patch.object(Flight, "_gone", lambda *_: None):
            first = flights.join(request)
            thread = threading.Thread(target=call, daemon=True)
            thread.start()
            self.assertTrue(waits.wait(60))
            del first
            gc.collect()
            thread.join(60)
        self.assertEqual(turns, [None])
        self.assertEqual(len(flights), 0)


if __name__ == "__main__":
    unittest.main()
