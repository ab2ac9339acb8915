"""The driver with threads: each order has its own."""

import json
import queue
import random
import signal
import sys
import threading
import traceback

import serverlock
from orders import (
    Work,
    act_for,
    answer,
    answer_error,
    answer_of,
    beside,
    bodies,
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
from serverlock import testing

main = queue.SimpleQueue()  # work for the main thread, the only one that runs signal handlers


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
        answer(order, act_for(order, globals())(order, library))
    except BaseException as error:
        answer_error(order, error)


def do_close(order, _):
    managers[order["manager"]].close()


def do_raw(order, _):
    in_memory = raw_in_memory(order)
    return in_memory or {"reply": plain(clients[order["manager"]].execute_command(*order["args"]))}


def do_advance(order, _):
    servers[order["name"]].clock.advance(order["ms"] / 1000)


class Interrupted(Exception):
    """Raised by a signal handler, like task queues' soft time limits."""


def do_storm(order, _):
    """The main thread is interrupted at random moments while others use the same manager."""
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
        if order.get("single_flight"):
            _fly(order | {"key": dice.choice(order["among"])}, None, [])
            return
        with lock_for(order | {"key": dice.choice(order["among"])}):
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
    """The package's threads: each of the driver's orders has its own thread."""
    names = [thread.name for thread in threading.enumerate() if thread.name.startswith("serverlock")]
    return left_in_managers() | {"threads": beside(names)}


class Body:
    """The orders for a scope's body."""

    def __init__(self, lock):
        self.lock, self.held, self.is_stopped = lock, None, False
        self.orders, self.wakes = [], threading.Condition()

    def add(self, work):
        with self.wakes:
            self.orders.append(work)
            self.wakes.notify()

    def next(self, timeout):
        with self.wakes:
            if not self.orders:
                self.wakes.wait(timeout)
            return self.orders.pop(0) if self.orders else None


def do_scope(order, _):
    body = bodies[order["scope"]] = Body(lock_for(order, scope=order["scope"]))
    with body.lock as held:
        _work(order, body, held)


def _work(order, body, held):
    """Carries out the orders for a scope's body."""
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


def do_once(order, _):
    name = order.get("scope")
    once = once_of(managers[order["manager"]], order, {"scope": name})
    if name is None:
        made = once.run(lambda held: f"tick {held.tick}")
        return {"outcome": made.outcome, "value": made.value}
    body = bodies[name] = Body(once)
    with once as held:
        if held is not None:
            _work(order, body, held)
    return outcome_of(held)


def do_single_flight(order, _):
    name, computed = order.get("scope"), []

    def fly():
        return _fly(order, name, computed)

    value = _within(bodies[order["within"]], fly) if "within" in order else fly()
    return answer_of(value, computed)


def _fly(order, name, computed):
    locks, (args, options) = managers[order["manager"]], flight_of(order, {"scope": name})
    body = bodies[name] = Body(None)

    def again():
        return _fly(order | {"scope": f"{name} again"}, None, [])

    body.again = again

    def compute(held):
        if name is not None:
            _work(order, body, held)
        computed.append(True)
        return value_of(order)

    return locks.single_flight(*args, compute, **options)


def _within(body, work):
    """Runs `work` in a scope's body or in a worker; returns its result, or raises its error."""
    done, box = threading.Event(), {}

    def run():
        try:
            box["value"] = work()
        except BaseException as error:
            box["error"] = error
        done.set()

    body.add(run)
    done.wait()
    if "error" in box:
        raise box["error"]
    return box["value"]


def do_spawn(order, _):
    """Starts a thread in the scope that outlives the scope."""
    worker = workers[order["worker"]] = Body(None)

    def work():
        while True:
            act = worker.next(10)
            if act is not None:
                act()

    _within(bodies[order["scope"]], threading.Thread(target=work, daemon=True).start)


def do_verify(order, _):
    return {"left_ms": held_for(order).verify() * 1000}


def do_release(order, _):
    return {"held": held_for(order).release()}


def do_fenced(order, _):
    return {"reply": plain(held_for(order).fenced(*order["args"]))}


def do_stop(order, _):
    leaders[order["leader"]].stop()


def do_open(order, library):
    open_manager(order, library, serverlock.Locks, testing.Server)


def do_acquire(order, _):
    def acquire():
        return keep(order, lock_for(order, hold=order["hold"]).acquire())

    return _within(bodies[order["within"]], acquire) if "within" in order else acquire()


def do_again(order, _):
    body = workers[order["worker"]] if "worker" in order else bodies[order["scope"]]
    lock = bodies[order["scope"]].lock
    if isinstance(lock, serverlock.Once):
        return _within(body, lambda: {"outcome": lock.run(lambda _: None).outcome})

    def again():
        if lock is None:
            return bodies[order["scope"]].again()
        if order.get("nested"):
            with lock as held:
                return shown(held)
        return keep(order, lock.acquire())

    return _within(body, again)


def do_extend(order, _):
    held_for(order).extend(lease_of(order))


def do_fork(order, _):
    body, locks = bodies[order["scope"]], managers[order["manager"]]

    def leave():
        body.lock.__exit__(KeyError, KeyError("unwinding"), None)

    def own():
        return locks.lock("the child's", 5).acquire().release()

    return what_child_saw(*_within(body, lambda: fork(body, leave, own)))


def do_lead(order, _):
    start_leader(order)


def do_observe(order, _):
    observer = observer_of(order)

    def observe():
        for leader in observer.observe():
            observed(order, leader)

    threading.Thread(target=observe, daemon=True).start()
