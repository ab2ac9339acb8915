"""Ticks at the edges of their windows, the estimate of the server's clock, and callers that are interrupted."""

import asyncio
import math
import threading
import time
import unittest
from dataclasses import replace
from typing import Any

import redis
import redis.asyncio

from scenarios.once import DAY, far_from_the_end, is_kept
from served import Served
from serverlock import HeldOnce, LockBadArgument, LockMisuse, Locks, Outcome, aio
from serverlock.aio.runtime import Runtime as Tasks
from serverlock.core.clock import now
from serverlock.core.once import DRIFTS, Run, schedule_of
from serverlock.core.server_clock import USUAL_MARGIN, VALID_FOR, Estimate, ServerClock, estimate_of
from serverlock.core.ticks import SLACK, begin_of, default_lease, end_of, is_recovery, tick_at
from serverlock.core.wire import ConnectionLost, ReplyError
from serverlock.threads.runtime import Runtime, run
from servers import until
from stage import calls

START = 1_799_971_200.0  # a tick of each of the periods below
PERIODS = (10.0, 60.0, 3600.0, 86400.0, 12.5)


class Ticks(unittest.TestCase):
    def test_a_time_belongs_to_the_nearest_tick(self) -> None:
        for period in PERIODS:
            tick = round(START / period)
            self.assertEqual(tick * period, START)
            for shift, meant in (
                (-0.5, 0),
                (-0.499, 0),
                (0, 0),
                (0.4, 0),
                (-0.4, 0),
                (0.499, 0),
                (0.5, 1),
                (-0.501, -1),
            ):
                self.assertEqual(tick_at(START + shift * period, period), tick + meant, (period, shift))

    def test_half_way_belongs_to_the_later_tick_whether_it_is_odd_or_even(self) -> None:
        """Python's `round` would choose the even one."""
        for tick in (180_000_000, 180_000_001):
            self.assertEqual(tick_at(end_of(tick, 10.0), 10.0), tick + 1)
            self.assertEqual(tick_at(begin_of(tick, 10.0), 10.0), tick)
            self.assertEqual(tick_at(end_of(tick, 10.0) - 1e-5, 10.0), tick)

    def test_windows_follow_each_other(self) -> None:
        for period in PERIODS:
            for tick in (7, 8):
                self.assertEqual(end_of(tick, period), begin_of(tick + 1, period))
                self.assertEqual(end_of(tick, period) - begin_of(tick, period), period)

    def test_the_ordinary_end_of_the_last_tick_is_not_a_crash(self) -> None:
        for period in PERIODS:
            tick, begins = round(START / period), START - period / 2
            for expired, is_crash in (
                (begins - period, False),
                (begins, False),
                (begins + 0.6, False),
                (begins + SLACK, False),
                (begins + SLACK + 0.01, True),
                (START, True),
            ):
                self.assertIs(is_recovery(expired, tick, period), is_crash, (period, expired - begins))

    def test_the_default_lease_leaves_time_to_run_the_tick_again(self) -> None:
        self.assertEqual((default_lease(10), default_lease(40), default_lease(3600)), (2.5, 10, 10))

    def test_the_lease_ends_a_margin_before_half_way_on_the_local_clock(self) -> None:
        run_ = Run(180_000_000, 10.0, False, Estimate(1_799_999_000.0, 0.0, 0.0), 1.5, False)
        self.assertEqual(run_.lease_ends(), 1000 + 5 - 1.5)
        for doubt, later in ((0.1, 0.1), (0.25, 0.25), (5, 0.25)):  # never earlier, and by less than the slack
            run_.estimate = Estimate(1_799_999_000.0, doubt, 0.0)
            self.assertAlmostEqual(run_.lease_ends(), 1000 + 5 - 1.5 + later, 5)


class Arguments(unittest.TestCase):
    def test_bad_periods_and_leases_are_refused(self) -> None:
        for period, lease in ((9.999, None), (0, None), ("60", None), (10, 5.001), (60, 0), (60, 31)):
            with self.assertRaises(LockBadArgument) as raised:
                schedule_of("job", period, lease, True, {})  # type: ignore[arg-type]
            self.assertIn("'job'", str(raised.exception))
        self.assertEqual(schedule_of("job", 10, None, True, {}).request.lease, 2.5)
        self.assertEqual(schedule_of("job", 10, 5, True, {}).request.lease, 5)

    def test_options_that_make_no_sense_are_unknown(self) -> None:
        for name in ("wait", "session", "details", "at_least"):
            with self.assertRaisesRegex(TypeError, name):
                Locks(redis.Redis()).once("job", 60, **{name: True})  # type: ignore[arg-type]


class FakeServer:
    """A wire to a server whose clock is `ahead` of the local one, and whose replies take `takes` seconds."""

    is_cluster = False

    def __init__(self) -> None:
        self.at, self.ahead, self.takes = 5000.0, 1_000_000.0, 0.0
        self.asked, self.fails, self.slow = 0, list[Exception](), list[float]()

    async def call(self, key: bytes, words: Any, timeout: float) -> Any:
        self.asked += 1
        if self.fails:
            raise self.fails.pop(0)
        takes = self.slow.pop(0) if self.slow else self.takes
        self.at += takes / 2
        micros = round((self.at + self.ahead) * 1_000_000)
        self.at += takes / 2
        return [b"%d" % (micros // 1_000_000), b"%d" % (micros % 1_000_000)]


class Clocks(unittest.TestCase):
    def setUp(self) -> None:
        self.server: Any = FakeServer()
        runtime: Any = Runtime()
        runtime.now = lambda: self.server.at
        self.clock = ServerClock(runtime, self.server, 5.0)

    def read(self, key: bytes = b"job") -> Estimate:
        return run(lambda: self.clock.read(key))

    def test_the_offset_is_taken_at_the_midpoint_of_the_call(self) -> None:
        self.server.takes = 0.4
        found = self.read()
        self.assertAlmostEqual(found.offset, 1_000_000.0, 5)
        self.assertAlmostEqual(found.doubt, 0.2, 5)

    def test_replies_are_bytes_or_text(self) -> None:
        for reply in ([b"1800000000", b"250000"], ["1800000000", "250000"], [1800000000, 250000]):
            self.assertAlmostEqual(estimate_of(reply, 10.0, 10.5).offset, 1_800_000_000.25 - 10.25, 5)
        for reply in (None, b"OK", [b"1"], [b"x", b"y"]):
            with self.assertRaisesRegex(ReplyError, "TIME"):
                estimate_of(reply, 0, 0)

    def test_it_is_asked_at_most_once_a_minute(self) -> None:
        for _ in range(3):
            self.read()
        self.server.at += VALID_FOR - 0.001
        self.read(b"another")
        self.assertEqual(self.server.asked, 1)
        self.server.at += 0.002
        self.server.ahead += 3.0  # somebody has changed its clock
        self.assertAlmostEqual(self.read().offset, 1_000_003.0, 5)
        self.assertEqual(self.server.asked, 2)

    def test_the_server_is_asked_again_after_a_slow_reply(self) -> None:
        self.server.slow = [0.51]
        found = self.read()
        self.assertEqual((found.doubt, self.read(), self.server.asked), (0, found, 2))

    def test_an_estimate_from_a_slow_reply_is_used_once(self) -> None:
        self.server.slow = [0.6, 0.7]
        found = self.read()
        self.assertFalse(found.is_good)
        self.assertAlmostEqual(found.doubt, 0.3, 5)
        self.assertAlmostEqual(found.offset, 1_000_000.0, 5)
        self.read()
        self.read()
        self.assertEqual(self.server.asked, 3)

    def test_each_server_of_a_cluster_has_its_own_clock(self) -> None:
        self.server.is_cluster = True
        for key in (b"a", b"b", b"a"):
            self.read(key)
        self.assertEqual(self.server.asked, 2)

    def test_the_server_is_asked_again_after_a_lost_reply(self) -> None:
        self.server.fails = [ConnectionLost(OSError())]
        self.assertAlmostEqual(self.read().offset, 1_000_000.0, 5)
        self.server.at += VALID_FOR + 1
        self.server.fails = [ConnectionLost(OSError()), ConnectionLost(OSError())]
        with self.assertRaises(ConnectionLost):
            self.read()
        self.server.fails = [ReplyError("NOPERM", "NOPERM")]
        with self.assertRaises(ReplyError):
            self.read()
        self.read()
        self.assertEqual(self.server.asked, 6)

    def test_many_tasks_ask_once(self) -> None:
        async def many() -> None:
            runtime: Any = Tasks()
            runtime.now = lambda: self.server.at
            clock, call = ServerClock(runtime, self.server, 5.0), self.server.call

            async def slow(*args: Any) -> Any:
                await asyncio.sleep(0.02)
                return await call(*args)

            self.server.call = slow
            await asyncio.gather(*(clock.read(b"job") for _ in range(20)))

        asyncio.run(many())
        self.assertEqual(self.server.asked, 1)

    def test_the_margin_is_asked_for_at_most_once_a_minute(self) -> None:
        asked = 0
        answers: list[Any] = [7.0, ReplyError("NOPERM", "NOPERM"), ConnectionLost(OSError()), None]

        async def ask() -> float | None:
            nonlocal asked
            asked += 1
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer  # type: ignore[no-any-return]

        def read() -> float:
            return run(lambda: self.clock.read_margin(ask))

        self.assertEqual((read(), read(), asked), (7.0, 7.0, 1))
        self.server.at += VALID_FOR
        self.assertEqual((read(), read(), asked), (7.0, 7.0, 2))
        self.server.at += VALID_FOR
        self.assertEqual((read(), read(), asked), (7.0, USUAL_MARGIN, 4))


class Interrupt(BaseException):
    """Like gevent's GreenletExit, or an exception from a signal handler."""


class Kept(Served):
    def setUp(self) -> None:
        super().setUp()
        self.locks = self.opened()
        self.end = far_from_the_end(self.conn)

    def is_kept(self, key: str = "job") -> bool:
        return is_kept(self.conn, key, self.end)

    def slow(self, command: str, seconds: float) -> None:
        """Delays this command once."""
        wire: Any = self.locks._engine().wire
        call, delays = wire.call, [seconds]

        async def slowly(key: bytes, words: Any, timeout: float) -> Any:
            if words[0] == command and delays:
                time.sleep(delays.pop())
            return await call(key, words, timeout)

        wire.call = slowly

    def interrupt(self, command: str, *, runs: bool) -> list[str]:
        """Interrupts the caller once in this command, before or after the server has run it."""
        wire: Any = self.locks._engine().wire
        call, left = wire.call, [command]

        async def interrupted(key: bytes, words: Any, timeout: float) -> Any:
            if words[0] not in left:
                return await call(key, words, timeout)
            left.remove(words[0])
            if runs:
                await call(key, words, timeout)
            raise Interrupt

        wire.call = interrupted
        return left

    def test_a_block_yields_the_hold_or_none(self) -> None:
        with self.locks.once("job", DAY) as held:
            assert isinstance(held, HeldOnce)
            held.check()
            self.assertEqual((held.tick, held.recovered), (round((self.end - DAY / 2) / DAY), False))
        self.assertTrue(self.is_kept())
        self.assertFalse(held.is_held)
        with self.locks.once("job", DAY) as held:
            self.assertIsNone(held)
        self.assertEqual(self.locks.once("other", DAY).run(lambda held: held.key), Outcome("ran", "'other'"))
        self.assertEqual(self.locks.once("other", DAY).run(lambda held: held.key), Outcome("elsewhere", None))

    def test_a_description_may_be_shared(self) -> None:
        """A block that got nothing must not end another thread's block."""
        once, entered, ends = self.locks.once("job", DAY), threading.Event(), threading.Event()
        outcomes = []

        def body(held: HeldOnce) -> bool:
            entered.set()
            ends.wait(30)
            return held.is_held

        thread = threading.Thread(target=lambda: outcomes.append(once.run(body)))
        thread.start()
        entered.wait(30)
        for _ in range(2):
            self.assertEqual(once.run(body).outcome, "elsewhere")
        ends.set()
        thread.join()
        self.assertEqual(outcomes, [Outcome("ran", True)])
        self.assertEqual(once._entered, [])
        self.assertTrue(self.is_kept())

    def test_an_error_in_the_body_releases_the_lock(self) -> None:
        for error in (KeyError, Interrupt):
            with self.assertRaises(error), self.locks.once("job", DAY) as held:
                self.assertIsNotNone(held)
                raise error
        self.assertEqual(self.conn.info("job")["state"], "free")

    def test_a_holds_block_refuses_the_same_lock(self) -> None:
        with self.locks.once("job", DAY):
            for again in (
                self.locks.once("job", DAY).run,
                lambda _: self.locks.lock("job", 5).acquire(),
                lambda _: self.locks.lock("job", 5, reentrant=True).acquire(),
                lambda _: self.locks.lock("job", 5, reentrant=True).__enter__(),
            ):
                with self.assertRaises(LockMisuse):
                    again(lambda held: None)

    def test_an_interrupted_extend_keeps_the_tick_in_the_background(self) -> None:
        for runs in (False, True):
            key = f"job {runs}"
            with self.assertRaises(Interrupt), self.locks.once(key, DAY, lease=60):
                left = self.interrupt("LOCK.EXTEND", runs=runs)
            self.assertEqual(left, [])
            until("it is kept", lambda key=key: self.is_kept(key))

    def test_an_interrupted_request_for_the_time_keeps_the_tick(self) -> None:
        with self.assertRaises(Interrupt), self.locks.once("job", DAY, lease=60) as held:
            assert held is not None
            self.age(held)
            left = self.interrupt("TIME", runs=True)
        self.assertEqual(left, [])
        until("it is kept", self.is_kept)

    def test_the_time_is_requested_again_after_a_long_body(self) -> None:
        for ages in (False, True):
            key = f"job {ages}"
            with self.locks.once(key, DAY, lease=60) as held:
                assert held is not None
                held._run.estimate = replace(held._run.estimate, offset=held._run.estimate.offset - 20)
                if ages:
                    self.age(held)
            self.assertIs(self.is_kept(key), ages)

    def test_the_time_is_requested_again_after_a_slow_reply(self) -> None:
        with self.locks.once("job", DAY, lease=60) as held:
            assert held is not None
            self.locks._engine().resources.clock._known.clear()
            held._run.estimate = Estimate(held._run.estimate.offset + 1, 1.0, held._run.estimate.asked)
        self.assertTrue(self.is_kept())

    def age(self, held: HeldOnce) -> None:
        """Makes the estimate of the server's clock old."""
        self.locks._engine().resources.clock._known.clear()
        held._run.estimate = replace(held._run.estimate, asked=held._run.estimate.asked - DRIFTS)

    def test_a_caller_that_is_interrupted_before_its_body_holds_nothing(self) -> None:
        left = self.interrupt("LOCK.INFO", runs=True)
        with self.assertRaises(Interrupt), self.locks.once("job", DAY, lease=60):
            self.fail("the body runs")
        self.assertEqual(left, [])
        until("the lock is free", lambda: self.conn.info("job")["state"] == "free")

    def test_a_cancelled_task_keeps_a_tick_that_has_run(self) -> None:
        async def cancelled() -> None:
            client = redis.asyncio.Redis(port=self.server.port)
            locks = aio.Locks(client)
            wire: Any = locks._engine().wire
            call, reached = wire.call, asyncio.Event()

            async def never(key: bytes, words: Any, timeout: float) -> Any:
                if words[0] == "LOCK.EXTEND" and not reached.is_set():
                    reached.set()
                    await asyncio.sleep(60)
                return await call(key, words, timeout)

            async def body(held: aio.HeldOnce) -> None:
                wire.call = never

            task = asyncio.create_task(locks.once("job", DAY, lease=60).run(body))
            await asyncio.wait_for(reached.wait(), 30)
            self.assertFalse(self.is_kept())
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(until, "it is kept", self.is_kept)
            await locks.aclose()
            await client.aclose()

        asyncio.run(cancelled())

    def test_a_renewal_in_flight_cannot_shorten_the_lease(self) -> None:
        wire: Any = self.locks._engine().wire
        batch, is_sent, may_arrive = wire.batch, threading.Event(), threading.Event()

        async def late(calls: Any, timeout: float) -> Any:
            is_sent.set()
            may_arrive.wait(4)
            return await batch(calls, timeout)

        wire.batch = late
        thread = threading.Thread(target=self.locks.once("job", DAY, lease=12).run, args=(lambda _: is_sent.wait(30),))
        thread.start()
        is_sent.wait(30)
        time.sleep(0.3)
        self.assertFalse(self.is_kept())
        may_arrive.set()
        thread.join()
        until("it is kept", self.is_kept)
        time.sleep(0.1)
        self.assertTrue(self.is_kept())

    def test_a_slow_extend_does_not_lengthen_the_lease(self) -> None:
        self.slow("LOCK.EXTEND", 0.8)
        self.locks.once("job", DAY, lease=60).run(lambda _: None)
        self.assertTrue(self.is_kept())

    def test_the_long_lease_is_corrected_for_the_margin(self) -> None:
        self.conn.call("CONFIG", "SET", "lock.margin-ms", "9000")
        with self.locks.once("job", DAY, rerun=False) as held:
            assert held is not None
            self.assertTrue(self.is_kept())
        self.assertTrue(self.is_kept())

    def test_the_long_lease_of_a_grant_in_the_next_window_lasts_until_its_end(self) -> None:
        """The attempt begins just before its window ends."""
        ends = now() + 0.2
        window_ends = (math.floor(time.time() / DAY) + 0.5) * DAY
        self.locks._engine().resources.clock._known = {b"": Estimate(window_ends - ends, 0.0, now())}
        self.slow("LOCK.ACQUIRE", 0.5)
        with self.locks.once("job", DAY, rerun=False) as held:
            assert held is not None
            held.check()
            self.assertGreater(held.left(), DAY * 0.89)
            self.assertGreater(self.conn.info("job")["lease-ms"], (DAY - 60) * 1000)

    def test_a_long_lease_from_a_slow_request_is_corrected(self) -> None:
        self.slow("LOCK.ACQUIRE", 0.5)
        with self.locks.once("job", DAY, rerun=False) as held:
            assert held is not None
            self.assertEqual(calls(self.conn, "lock.extend"), 1)
            self.assertTrue(self.is_kept())

    def test_a_keep_in_the_background_sends_a_last_copy(self) -> None:
        """A copy without a reply may run late, and would let others in at the wrong time."""
        with self.assertRaises(Interrupt), self.locks.once("job", DAY, lease=60):
            self.interrupt("LOCK.EXTEND", runs=False)
        until("the last copy is sent", lambda: calls(self.conn, "lock.extend") == 2)
        self.assertTrue(self.is_kept())

    def test_a_slow_estimate_is_used_if_asking_again_fails(self) -> None:
        wire: Any = self.locks._engine().wire
        call, asked = wire.call, []

        async def slow(key: bytes, words: Any, timeout: float) -> Any:
            if words[0] == "TIME":
                asked.append(words)
                if len(asked) > 1:
                    raise ConnectionLost(TimeoutError())
                time.sleep(0.6)
            return await call(key, words, timeout)

        wire.call = slow
        self.assertEqual(self.locks.once("job", DAY).run(lambda _: None).outcome, "ran")
        self.assertGreater(len(asked), 1)


if __name__ == "__main__":
    unittest.main()
