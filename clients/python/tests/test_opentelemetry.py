"""Spans and metrics, as the SDK's in-memory exporters get them."""

import asyncio
import threading
import unittest
from typing import Any

import redis
import redis.asyncio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from served import Served
from serverlock import Held, LockLost, LockNoServer, LockRefused, Locks, LockTimeout, __version__, aio
from serverlock.opentelemetry import Telemetry
from servers import Server, until


class Spans(Served):
    def setUp(self) -> None:
        super().setUp()
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.traces, self.meters = TracerProvider(), MeterProvider([self.reader])
        self.traces.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.traces.get_tracer("the application")
        self.locks = self.opened(hooks=self.telemetry())

    def telemetry(self, **options: Any) -> Telemetry:
        return Telemetry(self.traces, self.meters, **options)

    def spans(self, name: str) -> list[Any]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def points(self) -> dict[str, dict[tuple[str, ...], float]]:
        """The points of each metric: the attributes' values, and a count or value."""
        data: Any = self.reader.get_metrics_data()
        metrics = data.resource_metrics[0].scope_metrics[0].metrics if data else []
        return {
            metric.name: {
                tuple(str(value) for value in point.attributes.values()): getattr(
                    point, "count", getattr(point, "value", None)
                )
                for point in metric.data.data_points
            }
            for metric in metrics
        }

    def test_a_lock_that_is_waited_for_held_and_released(self) -> None:
        with self.tracer.start_as_current_span("work") as work:
            held = self.locks.lock("a", lease=30).acquire()
        held.release()
        (wait,), (hold,) = self.spans("lock.wait"), self.spans("lock.hold")
        self.assertEqual((wait.kind, hold.kind), (SpanKind.CLIENT, SpanKind.INTERNAL))
        parent: Any = work.get_span_context()
        self.assertEqual([it.parent.span_id for it in (wait, hold)], [parent.span_id] * 2)
        self.assertEqual(
            dict(wait.attributes),
            {
                "serverlock.key": "a",
                "db.system.name": "redis",
                "db.operation.name": "LOCK.ACQUIRE",
                "serverlock.outcome": "granted",
            },
        )
        self.assertEqual(
            dict(hold.attributes),
            {"serverlock.key": "a", "serverlock.token": held.token, "serverlock.outcome": "released"},
        )
        self.assertEqual({it.status.status_code for it in (wait, hold)}, {StatusCode.UNSET})
        self.assertEqual(
            (wait.instrumentation_scope.name, wait.instrumentation_scope.version), ("serverlock", __version__)
        )
        self.assertLessEqual(wait.start_time, wait.end_time)
        self.assertLessEqual(wait.end_time, hold.start_time)

    def test_a_refusal_and_a_time_out_are_not_errors(self) -> None:
        held = self.locks.lock("a", lease=30).acquire()
        with self.assertRaises(LockRefused):
            self.locks.lock("a", lease=30).acquire()
        with self.assertRaises(LockTimeout):
            self.locks.lock("a", lease=30, wait=0.1).acquire()
        held.release()
        self.assertEqual(
            [(it.attributes["serverlock.outcome"], it.status.status_code) for it in self.spans("lock.wait")[1:]],
            [("refused", StatusCode.UNSET), ("timeout", StatusCode.UNSET)],
        )

    def test_a_failure_is_an_error(self) -> None:
        self.server.kill()
        with self.assertRaises(LockNoServer):
            self.locks.lock("a", lease=30).acquire()
        (wait,) = self.spans("lock.wait")
        self.assertEqual(wait.attributes["error.type"], "no_server")
        self.assertEqual(
            (wait.status.status_code, wait.attributes["serverlock.outcome"]), (StatusCode.ERROR, "no_server")
        )

    def test_several_keys_are_an_array(self) -> None:
        self.locks.all_of(["a", "b"], lease=30).acquire().release()
        (wait,), (hold,) = self.spans("lock.wait"), self.spans("lock.hold")
        self.assertEqual([it.attributes["serverlock.keys"] for it in (wait, hold)], [("a", "b")] * 2)
        self.assertEqual(wait.attributes["db.operation.name"], "LOCK.MACQUIRE")

    def test_a_lost_lock_is_an_error_once(self) -> None:
        held = self.locks.lock("a", lease=30).acquire()
        self.conn.call("LOCK.RELEASE", "a", held.token)
        with self.assertRaises(LockLost):
            held.extend()
        held.release()
        until("it is reported", lambda: self.spans("lock.hold"))
        (hold,) = self.spans("lock.hold")
        self.assertEqual((hold.status.status_code, hold.attributes["serverlock.outcome"]), (StatusCode.ERROR, "lost"))
        self.assertEqual(hold.attributes["error.type"], "lost")
        self.assertEqual([event.name for event in hold.events], ["lock.lost"])
        self.assertEqual(self.points()["serverlock.losses"], {(): 1})
        self.assertEqual(self.points()["serverlock.held"], {(): 0})

    def test_a_dropped_hold_expires(self) -> None:
        self.locks.lock("a", lease=0.5).acquire()
        until("it is reported", lambda: self.spans("lock.hold"))
        (hold,) = self.spans("lock.hold")
        self.assertEqual(hold.attributes["serverlock.outcome"], "expired")
        self.assertEqual(self.points()["serverlock.held"], {(): 0})

    def test_metrics(self) -> None:
        held = self.locks.lock("a", lease=30).acquire()
        with self.assertRaises(LockRefused):
            self.locks.lock("a", lease=30).acquire()
        self.assertEqual(self.points()["serverlock.held"], {(): 1})
        held.release()
        self.locks.lock("b", lease=30).acquire().release()
        self.assertEqual(
            self.points(),
            {
                "serverlock.wait.duration": {("granted",): 2, ("refused",): 1},
                "serverlock.hold.duration": {("released",): 2},
                "serverlock.held": {(): 0},
            },
        )

    def test_keys_are_attributes_of_metrics_on_request(self) -> None:
        locks = self.opened(hooks=self.telemetry(key_attribute=True))
        locks.lock("a", lease=30).acquire().release()
        self.assertEqual(self.points()["serverlock.wait.duration"], {("a", "granted"): 1})
        self.assertEqual(self.points()["serverlock.held"], {("a",): 0})

    def test_without_the_module_the_scripts_function_is_the_operation(self) -> None:
        server = Server(module=False)
        self.addCleanup(server.end)
        locks = Locks(redis.Redis(port=server.port), hooks=self.telemetry(), warn_without_module=False)
        self.addCleanup(locks.close)
        locks.lock("a", lease=30).acquire().release()
        (wait,) = self.spans("lock.wait")
        self.assertEqual(wait.attributes["db.operation.name"], "lock_acquire")

    def test_a_run_once_per_period_ends_its_span(self) -> None:
        self.locks.once("a", 3600).run(lambda held: None)
        (hold,) = self.spans("lock.hold")
        self.assertEqual(hold.attributes["serverlock.outcome"], "released")

    def test_holders_of_one_key_have_spans_of_their_own(self) -> None:
        first, second = (self.locks.shared("a", lease=30).acquire() for _ in range(2))
        self.assertEqual(self.points()["serverlock.held"], {(): 2})
        second.release()
        self.assertEqual([it.attributes["serverlock.token"] for it in self.spans("lock.hold")], [second.token])
        first.release()

    def check_result(self, parent: Any) -> None:
        """The only attempt of this telemetry got another holder's result."""
        (wait,) = self.spans("lock.wait")
        self.assertEqual(
            dict(wait.attributes),
            {
                "serverlock.key": "a",
                "db.system.name": "redis",
                "db.operation.name": "LOCK.ACQUIRE",
                "serverlock.outcome": "result",
            },
        )
        self.assertEqual(wait.status.status_code, StatusCode.UNSET)
        self.assertEqual(wait.parent.span_id, parent.get_span_context().span_id)
        self.assertEqual(self.spans("lock.hold"), [])
        self.assertEqual(self.points(), {"serverlock.wait.duration": {("result",): 1}})

    def test_another_holders_result_is_an_outcome(self) -> None:
        parents: list[Any] = []

        def wait() -> None:
            with self.tracer.start_as_current_span("work") as work:
                parents.append(work)
                self.locks.single_flight("a", 30, lambda _: b"second")

        second = threading.Thread(target=wait)

        def compute(_: Held) -> bytes:
            second.start()
            until("it waits", self.is_awaited)
            return b"first"

        self.opened().single_flight("a", 30, compute)
        second.join()
        self.check_result(*parents)

    def test_another_holders_result_in_a_task(self) -> None:
        async def main() -> None:
            clients = [redis.asyncio.Redis(port=self.server.port) for _ in range(2)]
            async with aio.Locks(clients[0]) as first, aio.Locks(clients[1], hooks=self.telemetry()) as second:

                async def compute(_: aio.Held) -> bytes:
                    tasks.append(asyncio.create_task(wait()))
                    await asyncio.to_thread(until, "it waits", self.is_awaited)
                    return b"first"

                async def wait() -> Any:
                    with self.tracer.start_as_current_span("work") as work:
                        await second.single_flight("a", 30, compute)
                    return work

                tasks: list[asyncio.Task[Any]] = []
                await first.single_flight("a", 30, compute)
                self.check_result(await tasks[0])
            for client in clients:
                await client.aclose()

        asyncio.run(main())

    def is_awaited(self) -> bool:
        return bool(self.conn.map("LOCK.INFO", "a")["waiters"])

    def test_a_task_that_is_cancelled(self) -> None:
        async def main() -> None:
            client = redis.asyncio.Redis(port=self.server.port)
            async with aio.Locks(client, hooks=self.telemetry()) as locks, locks.lock("a", lease=30):
                with self.tracer.start_as_current_span("waiting") as waiting:
                    task = asyncio.create_task(locks.lock("a", lease=30, wait=60).acquire())
                await asyncio.to_thread(until, "it waits", self.is_awaited)
                task.cancel()
                await asyncio.wait([task])
            await client.aclose()
            (wait,) = [it for it in self.spans("lock.wait") if it.attributes["serverlock.outcome"] != "granted"]
            self.assertEqual(wait.attributes["serverlock.outcome"], "cancelled")
            self.assertEqual(wait.status.status_code, StatusCode.UNSET)
            parent: Any = waiting.get_span_context()
            self.assertEqual(wait.parent.span_id, parent.span_id)

        asyncio.run(main())

    def test_any_thread_may_release(self) -> None:
        held = self.locks.lock("a", lease=30).acquire()
        thread = threading.Thread(target=held.release)
        thread.start()
        thread.join()
        self.assertEqual(len(self.spans("lock.hold")), 1)


if __name__ == "__main__":
    unittest.main()
