"""The driver with asyncio: each order is a task."""

import asyncio
import gc
import json
import math
import os
import random
import sys
import threading
import traceback

import serverlock
from driver import (
    Work,
    answer,
    answer_error,
    beside,
    client_of,
    left_in,
    lock_of,
    manager_options,
    plain,
    say,
    shown,
    tally_of,
)
from serverlock.aio import Locks

clients, managers, holds, objects, bodies, workers, leaders = {}, {}, {}, {}, {}, {}, {}
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
        act = globals().get(f"do_{order['do']}")
        if act is None:
            raise NotImplementedError(order["do"])
        answer(order, await act(order, library))
    except BaseException as error:
        answer_error(order, error)


async def do_open(order, library):
    client = clients[order["manager"]] = client_of(library, order["at"], order)
    managers[order["manager"]] = Locks(client, **manager_options(order))


async def do_close(order, _):
    await managers[order["manager"]].aclose()


async def do_raw(order, _):
    return {"reply": plain(await clients[order["manager"]].execute_command(*order["args"]))}


async def do_object(order, _):
    objects[order["object"]] = lock_of(managers[order["manager"]], order, {"object": order["object"]})


def _lock(order, **name):
    if "object" in order:
        return objects[order["object"]]
    return lock_of(managers[order["manager"]], order, name)


async def do_acquire(order, _):
    held = holds[order["hold"]] = await _lock(order, hold=order["hold"]).acquire()
    return shown(held)


async def do_storm(order, _):
    dice, loop, left = random.Random(), asyncio.get_running_loop(), order["attempts"]
    within, tallies = order["within_ms"] / 1000, []

    async def attempt():
        async with _lock(order | {"key": dice.choice(order["among"])}):
            pass

    async def attempts():
        nonlocal left
        while left > 0:
            left -= 1
            at = loop.time() + within * dice.random() ** 3
            if dice.random() < 0.25:
                at = math.ceil(at / 0.005) * 0.005  # together with others
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
    return left_in(managers) | {"tasks": beside(names) - len(tasks), "threads": threading.active_count()}


async def do_cancel(order, _):
    if order["of"] in tasks:
        tasks[order["of"]].cancel()


class Body:
    def __init__(self, lock):
        self.lock, self.held, self.orders = lock, None, asyncio.Queue()


async def do_scope(order, _):
    body = bodies[order["scope"]] = Body(_lock(order, scope=order["scope"]))
    async with body.lock as held:
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


async def do_leave(order, _):
    bodies[order["scope"]].orders.put_nowait("leave")


async def do_fail(order, _):
    bodies[order["scope"]].orders.put_nowait("fail")


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
    """A task that is started in the scope, and outlives it."""
    orders = workers[order["worker"]] = asyncio.Queue()

    async def work():
        while True:
            await (await orders.get())()

    async def spawn():
        kept.add(asyncio.create_task(work()))

    await _within(bodies[order["scope"]].orders, spawn)


async def do_again(order, _):
    async def again():
        held = await bodies[order["scope"]].lock.acquire()
        if "hold" in order:
            holds[order["hold"]] = held
        return shown(held)

    return await _within(workers[order["worker"]] if "worker" in order else bodies[order["scope"]].orders, again)


async def do_fork(order, _):
    body = bodies[order["scope"]]
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = {}
        try:
            try:
                body.held.check()
                said["check"] = "held"
            except serverlock.LockLost:
                said["check"] = "lost"
            # The loop of the parent is of no use here: the coroutine has to end without it.
            leaving = body.lock.__aexit__(KeyError, KeyError("unwinding"), None)
            asyncio._set_running_loop(None)
            asyncio.new_event_loop().run_until_complete(leaving)
            said["own"] = asyncio.new_event_loop().run_until_complete(_own(order))
        except BaseException:
            said["error"] = traceback.format_exc()
        os.write(writing, json.dumps(said).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = json.loads(await asyncio.to_thread(pipe.read))
    os.waitpid(child, 0)
    return said


async def _own(order):
    client = client_of(sys.argv[1], order["at"], {})
    held = await Locks(client).lock("the child's", 5).acquire()
    return await held.release()


def _held(order):
    return holds[order["hold"]] if "hold" in order else bodies[order["scope"]].held


async def do_check(order, _):
    held = _held(order)
    held.check()
    return {"left_ms": held.left() * 1000}


async def do_left(order, _):
    return {"left_ms": _held(order).left() * 1000}


async def do_verify(order, _):
    return {"left_ms": await _held(order).verify() * 1000}


async def do_extend(order, _):
    await _held(order).extend(order["lease_ms"] / 1000 if "lease_ms" in order else None)


async def do_release(order, _):
    return {"held": await _held(order).release()}


async def do_fenced(order, _):
    return {"reply": plain(await _held(order).fenced(*order["args"]))}


async def do_drop(order, _):
    del holds[order["hold"]]
    gc.collect()


async def do_lead(order, _):
    name = order["leader"]
    leaders[name] = (
        managers[order["manager"]]
        .leader(
            order["key"],
            order["lease_ms"] / 1000,
            owner=order.get("owner"),
            on_elected=lambda token: say(event="elected", leader=name, token=token),
            on_lost=lambda token: say(event="deposed", leader=name, token=token),
        )
        .start()
    )


async def do_resign(order, _):
    leaders[order["leader"]].resign()


async def do_stop(order, _):
    await leaders[order["leader"]].stop()


async def do_observe(order, _):
    observer = managers[order["manager"]].leader(order["key"], order["lease_ms"] / 1000)

    async def observe():
        async for now in observer.observe():
            say(event="leader", observer=order["observer"], token=now.token, owner=now.owner)

    kept.add(asyncio.create_task(observe()))
