"""The driver with asyncio: each order is a task."""

import asyncio
import inspect
import json
import math
import os
import random
import sys
import threading
import traceback

import serverlock
from orders import (
    Cancelled,
    Work,
    act_for,
    answer,
    answer_error,
    answer_of,
    beside,
    bodies,
    client_of,
    clients,
    flight_of,
    fork,
    held_for,
    keep,
    leaders,
    lease_of,
    left_in_managers,
    lock_for,
    managers,
    observed,
    observer_of,
    once_of,
    open_manager,
    outcome_of,
    plain,
    raw_in_memory,
    say,
    servers,
    shown,
    start_leader,
    tally_of,
    value_of,
    what_child_saw,
    workers,
)
from serverlock.aio import Locks, Once
from serverlock.testing.aio import Server

tasks, kept = {}, set()


def play(library):
    asyncio.run(_main(library))


async def _main(library):
    reader = asyncio.StreamReader(limit=2**20)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        order = json.loads(line)
        task = tasks[order["n"]] = asyncio.create_task(_play(library, order))
        task.add_done_callback(lambda _, n=order["n"]: tasks.pop(n))
    sys.stdout.flush()
    os._exit(0)


async def _play(library, order):
    try:
        made = act_for(order, globals())(order, library)
        answer(order, await made if inspect.isawaitable(made) else made)
    except BaseException as error:
        answer_error(order, error)


async def do_close(order, _):
    await managers[order["manager"]].aclose()


async def do_raw(order, _):
    in_memory = raw_in_memory(order)
    return in_memory or {"reply": plain(await clients[order["manager"]].execute_command(*order["args"]))}


async def do_advance(order, _):
    await servers[order["name"]].clock.advance(order["ms"] / 1000)


async def do_storm(order, _):
    dice, loop, left = random.Random(), asyncio.get_running_loop(), order["attempts"]
    within, tallies = order["within_ms"] / 1000, []

    async def attempt():
        if order.get("single_flight"):
            await _fly(order | {"key": dice.choice(order["among"])}, None, [])
            return
        async with lock_for(order | {"key": dice.choice(order["among"])}):
            pass

    async def attempts():
        nonlocal left
        while left > 0:
            left -= 1
            at = loop.time() + within * dice.random() ** 3
            if dice.random() < 0.25:
                at = math.ceil(at / 0.005) * 0.005  # at the same time as others
            try:
                if order["means"] == "timeout":
                    async with asyncio.timeout_at(at) as scope:
                        await attempt()
                else:
                    scope = asyncio.ensure_future(attempt())
                    timer = loop.call_at(at, scope.cancel)
                    try:
                        await scope
                    finally:
                        timer.cancel()
                tallies.append("granted")
            except serverlock.LockRefused:
                tallies.append("refused")
            except (TimeoutError, asyncio.CancelledError):
                tallies.append("cancelled")
            except Exception:
                tallies.append(traceback.format_exc())

    await asyncio.gather(*(attempts() for _ in range(order["at_once"])))
    return tally_of(tallies)


async def do_census(_, __):
    names = [task.get_name() for task in asyncio.all_tasks()]
    return left_in_managers() | {"tasks": beside(names) - len(tasks), "threads": threading.active_count()}


async def do_cancel(order, _):
    if order["of"] in tasks:
        tasks[order["of"]].cancel()


class Body:
    def __init__(self, lock):
        self.lock, self.held, self.orders = lock, None, asyncio.Queue()

    def add(self, work):
        self.orders.put_nowait(work)


async def do_scope(order, _):
    body = bodies[order["scope"]] = Body(lock_for(order, scope=order["scope"]))
    async with body.lock as held:
        await _work(order, body, held)


async def _work(order, body, held):
    """Carries out the orders for a scope's body."""
    body.held = held
    say(event="entered", scope=order["scope"], token=held.token)
    while True:
        try:
            work = await body.orders.get()
        except asyncio.CancelledError:
            say(event="stopped", scope=order["scope"])
            if order.get("stays"):
                continue
            raise
        if work == "leave":
            break
        if work == "fail":
            raise Work("the work failed")
        await work()


async def do_once(order, _):
    name = order.get("scope")
    once = once_of(managers[order["manager"]], order, {"scope": name})
    if name is None:

        async def work(held):
            return f"tick {held.tick}"

        made = await once.run(work)
        return {"outcome": made.outcome, "value": made.value}
    body = bodies[name] = Body(once)
    async with once as held:
        if held is not None:
            await _work(order, body, held)
    return outcome_of(held)


async def do_single_flight(order, _):
    name, computed = order.get("scope"), []

    async def fly():
        return await _fly(order, name, computed)

    value = await (_within(bodies[order["within"]].orders, fly) if "within" in order else fly())
    return answer_of(value, computed)


async def _fly(order, name, computed):
    locks, (args, options) = managers[order["manager"]], flight_of(order, {"scope": name})
    body = bodies[name] = Body(None)

    async def again():
        return await _fly(order | {"scope": f"{name} again"}, None, [])

    body.again = again

    async def compute(held):
        if name is not None:
            await _work(order, body, held)
        computed.append(True)
        return value_of(order)

    return await locks.single_flight(*args, compute, **options)


async def _within(orders, work):
    done = asyncio.get_running_loop().create_future()

    async def run():
        try:
            done.set_result(await work())
        except Exception as error:
            done.set_exception(error)

    orders.put_nowait(run)
    return await done


async def do_spawn(order, _):
    """Starts a task in the scope that outlives the scope."""
    orders = workers[order["worker"]] = asyncio.Queue()

    async def work():
        while True:
            await (await orders.get())()

    async def spawn():
        kept.add(asyncio.create_task(work()))

    await _within(bodies[order["scope"]].orders, spawn)


async def do_verify(order, _):
    return {"left_ms": await held_for(order).verify() * 1000}


async def do_release(order, _):
    return {"held": await held_for(order).release()}


async def do_fenced(order, _):
    return {"reply": plain(await held_for(order).fenced(*order["args"]))}


async def do_stop(order, _):
    await leaders[order["leader"]].stop()


async def do_open(order, library):
    open_manager(order, library, Locks, Server)


async def do_acquire(order, _):
    async def acquire():
        return keep(order, await lock_for(order, hold=order["hold"]).acquire())

    async def cancelled():
        try:
            async with asyncio.timeout(order["cancel_after_ms"] / 1000) as scope:
                return await acquire()
        except TimeoutError:
            if scope.expired():
                raise Cancelled from None
            raise

    if "within" not in order:
        return await acquire()
    return await _within(bodies[order["within"]].orders, cancelled if "cancel_after_ms" in order else acquire)


async def do_again(order, _):
    lock = bodies[order["scope"]].lock

    async def again():
        if lock is None:
            return await bodies[order["scope"]].again()
        if isinstance(lock, Once):
            async with lock as held:
                return outcome_of(held)
        if order.get("nested"):
            async with lock as held:
                return shown(held)
        return keep(order, await lock.acquire())

    return await _within(workers[order["worker"]] if "worker" in order else bodies[order["scope"]].orders, again)


async def do_extend(order, _):
    await held_for(order).extend(lease_of(order))


async def do_fork(order, _):
    body = bodies[order["scope"]]

    def leave():
        # The child cannot use its parent's loop: the coroutine must end in a new one.
        leaving = body.lock.__aexit__(KeyError, KeyError("unwinding"), None)
        asyncio._set_running_loop(None)
        asyncio.new_event_loop().run_until_complete(leaving)

    def own():
        return asyncio.new_event_loop().run_until_complete(_own(order))

    return await asyncio.to_thread(what_child_saw, *fork(body, leave, own))


async def _own(order):
    held = await Locks(client_of(sys.argv[1], order["at"], {})).lock("the child's", 5).acquire()
    return await held.release()


async def do_lead(order, _):
    start_leader(order)


async def do_observe(order, _):
    observer = observer_of(order)

    async def observe():
        async for leader in observer.observe():
            observed(order, leader)

    kept.add(asyncio.create_task(observe()))
