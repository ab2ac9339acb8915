"""The driver with threads: each order has one."""

import gc
import json
import os
import queue
import random
import signal
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

clients, managers, holds, objects, bodies, workers, leaders = {}, {}, {}, {}, {}, {}, {}
main = queue.SimpleQueue()  # what the main thread does: handlers of signals run in no other


def play(library):
    threading.Thread(target=_read, args=(library,), daemon=True).start()
    while (work := main.get()) is not None:
        work()


def _read(library):
    for line in sys.stdin:
        order = json.loads(line)
        threading.Thread(target=_play, args=(library, order), daemon=True).start()
    main.put(None)


def _play(library, order):
    try:
        act = globals().get(f"do_{order['do']}")
        if act is None:
            raise NotImplementedError(order["do"])
        answer(order, act(order, library))
    except BaseException as error:
        answer_error(order, error)


def do_open(order, library):
    client = clients[order["manager"]] = client_of(library, order["at"], order)
    managers[order["manager"]] = serverlock.Locks(client, **manager_options(order))


def do_close(order, _):
    managers[order["manager"]].close()


def do_raw(order, _):
    return {"reply": plain(clients[order["manager"]].execute_command(*order["args"]))}


def do_object(order, _):
    objects[order["object"]] = lock_of(managers[order["manager"]], order, {"object": order["object"]})


def _lock(order, **name):
    if "object" in order:
        return objects[order["object"]]
    return lock_of(managers[order["manager"]], order, name)


def do_acquire(order, _):
    held = holds[order["hold"]] = _lock(order, hold=order["hold"]).acquire()
    return shown(held)


class Interrupted(Exception):
    """What a handler of a signal raises, like the soft time limits of task queues."""


def do_storm(order, _):
    """The main thread is interrupted at random moments, beside others that use the same manager."""
    done, box = threading.Event(), {}

    def storm():
        try:
            box["value"] = tally_of(_storm(order))
        except BaseException as error:
            box["error"] = error
        done.set()

    main.put(storm)
    done.wait()
    if "error" in box:
        raise box["error"]
    return box["value"]


def _storm(order):
    dice, tallies, is_over = random.Random(), [], threading.Event()

    def attempt():
        with _lock(order | {"key": dice.choice(order["among"])}):
            pass

    def beside():
        while not is_over.is_set():
            try:
                attempt()
            except serverlock.LockRefused:
                pass
            except Exception:
                tallies.append(traceback.format_exc())

    def ring(*_):
        raise dice.choice((Interrupted, KeyboardInterrupt))

    before = signal.signal(signal.SIGALRM, ring)
    others = [threading.Thread(target=beside, daemon=True) for _ in range(min(order["at_once"], 8) - 1)]
    for other in others:
        other.start()
    for _ in range(order["attempts"]):
        try:
            signal.setitimer(signal.ITIMER_REAL, max(1e-5, order["within_ms"] / 1000 * dice.random() ** 3))
            try:
                attempt()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            tallies.append("granted")
        except (Interrupted, KeyboardInterrupt):
            tallies.append("cancelled")
        except serverlock.LockRefused:
            tallies.append("refused")
        except Exception:
            tallies.append(traceback.format_exc())
    is_over.set()
    for other in others:
        other.join()
    signal.signal(signal.SIGALRM, before)
    return tallies


def do_census(_, __):
    """The threads of the package: each order of the driver has one of its own."""
    names = [thread.name for thread in threading.enumerate() if thread.name.startswith("serverlock")]
    return left_in(managers) | {"threads": beside(names)}


class Body:
    """What the body of a scope is told to do."""

    def __init__(self, lock):
        self.lock, self.held, self.is_stopped = lock, None, False
        self.orders, self.wakes = [], threading.Condition()

    def tell(self, work):
        with self.wakes:
            self.orders.append(work)
            self.wakes.notify()

    def next(self, timeout):
        with self.wakes:
            if not self.orders:
                self.wakes.wait(timeout)
            return self.orders.pop(0) if self.orders else None


def do_scope(order, _):
    body = bodies[order["scope"]] = Body(_lock(order, scope=order["scope"]))
    with body.lock as held:
        body.held = held
        say(event="entered", scope=order["scope"], token=held.token)
        while True:
            work = body.next(0.01)
            if work == "leave":
                break
            if work == "fail":
                raise Work("the work failed")
            if work is not None:
                work()
                continue
            if held.lost is not None and not body.is_stopped:
                say(event="stopped", scope=order["scope"])
                body.is_stopped = True
                if not order.get("stays"):
                    held.check()


def do_leave(order, _):
    bodies[order["scope"]].tell("leave")


def do_fail(order, _):
    bodies[order["scope"]].tell("fail")


def _within(body, work):
    """Runs it in the body of a scope, or a worker; gives what it gave, or raises what it raised."""
    done, box = threading.Event(), {}

    def run():
        try:
            box["value"] = work()
        except BaseException as error:
            box["error"] = error
        done.set()

    body.tell(run)
    done.wait()
    if "error" in box:
        raise box["error"]
    return box["value"]


def do_spawn(order, _):
    """A thread that is started in the scope, and outlives it."""
    worker = workers[order["worker"]] = Body(None)

    def work():
        while True:
            act = worker.next(10)
            if act is not None:
                act()

    _within(bodies[order["scope"]], threading.Thread(target=work, daemon=True).start)


def do_again(order, _):
    def again():
        held = bodies[order["scope"]].lock.acquire()
        if "hold" in order:
            holds[order["hold"]] = held
        return shown(held)

    return _within(workers[order["worker"]] if "worker" in order else bodies[order["scope"]], again)


def do_fork(order, _):
    return _within(bodies[order["scope"]], lambda: _fork(order))


def _fork(order):
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
            body.lock.__exit__(KeyError, KeyError("unwinding"), None)
            own = managers[order["manager"]].lock("the child's", 5).acquire()
            said["own"] = own.release()
        except BaseException:
            said["error"] = traceback.format_exc()
        os.write(writing, json.dumps(said).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = json.loads(pipe.read())
    os.waitpid(child, 0)
    return said


def _held(order):
    return holds[order["hold"]] if "hold" in order else bodies[order["scope"]].held


def do_check(order, _):
    held = _held(order)
    held.check()
    return {"left_ms": held.left() * 1000}


def do_left(order, _):
    return {"left_ms": _held(order).left() * 1000}


def do_verify(order, _):
    return {"left_ms": _held(order).verify() * 1000}


def do_extend(order, _):
    _held(order).extend(order["lease_ms"] / 1000 if "lease_ms" in order else None)


def do_release(order, _):
    return {"held": _held(order).release()}


def do_fenced(order, _):
    return {"reply": plain(_held(order).fenced(*order["args"]))}


def do_drop(order, _):
    del holds[order["hold"]]
    gc.collect()


def do_lead(order, _):
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


def do_resign(order, _):
    leaders[order["leader"]].resign()


def do_stop(order, _):
    leaders[order["leader"]].stop()


def do_observe(order, _):
    observer = managers[order["manager"]].leader(order["key"], order["lease_ms"] / 1000)

    def observe():
        for now in observer.observe():
            say(event="leader", observer=order["observer"], token=now.token, owner=now.owner)

    threading.Thread(target=observe, daemon=True).start()
