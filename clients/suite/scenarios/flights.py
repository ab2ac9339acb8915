"""One result for many callers: one of them computes it, and all that wait get the same bytes.

A manager is like a process of its own, so most scenarios have several managers in one driver. Locks live on a server
with the module ("m", "n") and on one without it ("p", "q").
"""

import re
from collections import Counter

from driver import Cannot, Failure
from resp import queue_of
from scenarios.holding import fails
from scenarios.waiting import end_of_solitude
from stage import LONG_LEASE, LONG_WAIT, PATIENCE, calls, is_free, scenario, until, waits

VALUES = ("42 pages", "", {"hex": "00ff0d0a"})
LIMIT = 65536  # without the module; with it, the default of lock.result-max
SOON = 250


def result_of(key):
    """Where a result is stored without the module: docs/CLIENT_SPEC.md."""
    head, queue, tail = queue_of(key).rpartition(":queue")
    return f"{head}:result{tail}" if queue else None


class Place:
    """A server with the module or without it, and the names of two managers for it."""

    def __init__(self, stage, managers, *options, module=True, **more):
        self.module = module
        self.server = stage.server(*options, module=module)
        self.conn = stage.connect(self.server)
        self.first, self.second = managers
        self._monitor, self._asked = stage.connect(self.server), Counter()
        self._monitor.timeout(PATIENCE)
        self._monitor.call("MONITOR")
        self.at = {**self.server.at, **more}

    def open(self, driver, *managers, **options):
        for manager in managers or (self.first, self.second):
            driver.do("open", manager=manager, at=self.at, **options)

    def queued(self, key, count=1, asked=None):
        """Waits until this many attempts are queued and get the holder's result. Without the module, that is once each
        has asked what is stored: `asked` GETs since the beginning, if that is not `count`."""
        waits(self.conn, key, count)
        if not self.module:
            self.asked(key, count if asked is None else asked)

    def asked(self, key, count):
        result = result_of(key).lower()
        lines = self._monitor.monitored(PATIENCE)
        while self._asked[result] < count:  # meanwhile, attempts for other keys ask as well
            self._asked.update(re.findall(r'"get" "([^"]*)"', next(lines)))

    def waiters(self, key):
        return self.conn.info(key)["waiters"]

    def alone(self, key):
        """Waits until exactly one attempt is queued."""
        until(f"one waits for {key}", lambda: self.waiters(key) == 1)

    def is_free(self, key):
        return is_free(self.conn, key) if self.module else self.conn.call("EXISTS", key, queue_of(key)) == 0


def places(stage):
    """The driver that is there already, and a place with the module and one without it, open for it."""
    driver = stage.drivers[0]
    made = [Place(stage, "mn"), Place(stage, "pq", module=False)]
    for place in made:
        place.open(driver)
    return driver, made


def ask(driver, manager, key, **fields):
    """Asks for the value. By default the caller would compute its own manager's name."""
    return driver.begin("single_flight", **{
        "manager": manager, "key": key, "lease_ms": LONG_LEASE, "wait_ms": LONG_WAIT, "value": f"by {manager}", **fields})


def computes(driver, manager, key, scope=None, **fields):
    """Asks, and waits until this caller computes, which lasts until the order `leave` or `fail`. Its scope has the name
    of the manager."""
    return entered(driver, ask(driver, manager, key, scope=scope or manager, **fields), scope or manager)


def entered(driver, pending, scope):
    until("it computes or fails", lambda: driver.events("entered", scope=scope) or pending.is_answered)
    if not driver.events("entered", scope=scope):
        raise AssertionError(f"it did not compute: {pending.get()}")
    return pending


def got(pending):
    made = pending.get()
    return made["value"], made["computed"]


@scenario("single_flight", rules="G1 G2 G6 W11")
def one_process_computes_and_all_get_its_value(stage):
    driver, both = places(stage)
    other = stage.driver()
    for place in both:
        place.open(other)
        for number, value in enumerate(VALUES):
            key, scope = f"report {number}", f"{place.first} {number}"
            holder = computes(driver, place.first, key, scope, value=value)
            waiting = [ask(*who, key) for who in ((driver, place.second), (other, place.first), (other, place.second))]
            place.queued(key, 3)
            assert not any(it.is_answered for it in (holder, *waiting))
            driver.do("leave", scope=scope)
            assert [got(it) for it in (holder, *waiting)] == [(value, True)] + 3 * [(value, False)]
            assert place.is_free(key)
            # A later caller computes again.
            assert got(ask(other, place.second, key, value="later")) == ("later", True)
            assert place.is_free(key)


@scenario("single_flight", "background", rules="G1 W1 W4 W5")
def a_result_is_announced_on_the_channel(stage):
    driver, (place, _) = places(stage)
    end_of_solitude(driver, place.conn)
    keys = [f"report {number}" for number in range(4)]
    holders = [computes(driver, "n", key, key) for key in keys]
    waiting = [ask(driver, "m", key) for key in keys]
    for key in keys:
        place.queued(key)
    before = calls(place.conn, "lock.acquire")
    for key in keys:
        driver.do("leave", scope=key)
    assert [got(it) for it in (*holders, *waiting)] == 4 * [("by n", True)] + 4 * [("by n", False)]
    assert calls(place.conn, "lock.acquire") - before <= 8, "the waiters poll"
    assert calls(place.conn, "lock.cancel") == 0 and all(place.is_free(key) for key in keys)


@scenario("single_flight", rules="G1 G6 W9 Q9")
def without_the_right_to_the_channel_all_get_the_value_too(stage):
    driver = stage.drivers[0]
    for place in (Place(stage, "mn", user="app", password="secret"),
                  Place(stage, "pq", module=False, user="app", password="secret")):
        place.conn.call("ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "resetchannels")
        place.open(driver)
        keys = ("a", "b", "c")
        holders = [computes(driver, place.first, key, place.first + key) for key in keys]
        waiting = [ask(driver, place.second, key) for key in keys]
        polls = "polls" in driver.ready["can"]
        for key in keys:
            if not place.module:
                place.asked(key, 1)
            elif not polls:
                place.queued(key)
        for key in keys:
            driver.do("leave", scope=place.first + key)
        assert [got(it) for it in holders] == 3 * [(f"by {place.first}", True)]
        made = [got(it) for it in waiting]
        # An attempt that polls the module does not queue, and so computes.
        assert polls and place.module or made == 3 * [(f"by {place.first}", False)], made
        until("all are free", lambda place=place, keys=keys: all(place.is_free(key) for key in keys))


@scenario("single_flight", rules="G1 G3 G6 S1")
def a_plain_attempt_in_the_same_queue_gets_the_lock(stage):
    driver, both = places(stage)
    other = stage.driver()
    for place in both:
        place.open(other)
        holder = computes(driver, place.first, "report")
        first = ask(other, place.first, "report")
        place.queued("report", 1)
        plain = driver.begin("acquire", manager=place.second, hold=place.second, key="report", lease_ms=LONG_LEASE,
                             wait_ms=LONG_WAIT)
        waits(place.conn, "report", 2)
        last = ask(other, place.second, "report")
        place.queued("report", 3, asked=2)
        driver.do("leave", scope=place.first)
        value = f"by {place.first}"
        assert [got(holder), got(first)] == [(value, True), (value, False)]
        plain.get()
        if place.module:
            assert got(last) == (value, False)
        assert driver.do("release", hold=place.second)["held"] is True
        assert got(last) == (value, False)
        assert place.is_free("report")


@scenario("single_flight", rules="G3 H12")
def a_compute_that_fails_lets_the_next_one_compute(stage):
    driver, both = places(stage)
    other = stage.driver()
    for place in both:
        place.open(other)
        holder = computes(driver, place.first, "report")
        second = ask(driver, place.second, "report", scope=place.second)
        place.queued("report", 1)
        third = ask(other, place.first, "report")
        place.queued("report", 2)
        driver.do("fail", scope=place.first)
        with fails("work"):
            holder.get()
        entered(driver, second, place.second)
        assert not third.is_answered
        driver.do("leave", scope=place.second)
        assert [got(second), got(third)] == [(f"by {place.second}", True), (f"by {place.second}", False)]
        assert place.is_free("report")


@scenario("single_flight", rules="G2 G3 A1")
def what_is_no_bytes_is_a_bad_argument_and_the_lock_is_released(stage):
    driver, both = places(stage)
    for place in both:
        pending = ask(driver, place.first, "report", value=None)
        try:
            pending.get()
        except Failure as error:
            assert error.kind == "argument" and "report" in error.text, error
        else:
            raise AssertionError("no error")
        assert place.is_free("report")


@scenario("single_flight", rules="G3 G6")
def each_computes_a_value_that_is_too_long_to_pass_on(stage):
    driver = stage.drivers[0]
    for place, most in ((Place(stage, "mn", "result-max", 10), 10), (Place(stage, "pq", module=False), LIMIT)):
        place.open(driver)
        for size in (most, most + 1):
            key, value, scope = f"report {size}", "x" * size, f"{place.first} {size}"
            holder = computes(driver, place.first, key, scope, value=value)
            waiter = ask(driver, place.second, key)
            place.queued(key)
            driver.do("leave", scope=scope)
            assert got(holder) == (value, True)
            assert got(waiter) == ((value, False) if size == most else (f"by {place.second}", True))
            assert place.is_free(key)


@scenario("single_flight", rules="G1 A5 W7")
def a_wait_that_ends_leaves_nothing_and_others_get_the_value(stage):
    driver, both = places(stage)
    other = stage.driver()
    for place in both:
        place.open(other)
        holder = computes(driver, place.first, "report")
        patient = ask(other, place.second, "report")
        place.queued("report", 1)
        short = ask(driver, place.second, "report", wait_ms=SOON)
        with fails("timeout", "report"):
            short.get()
        place.alone("report")
        driver.do("leave", scope=place.first)
        assert [got(holder), got(patient)] == [(f"by {place.first}", True), (f"by {place.first}", False)]
        assert place.is_free("report")


@scenario("single_flight", rules="G3 H13")
def after_the_death_of_the_holder_the_next_one_computes(stage):
    server = stage.server("margin-ms", 0)
    conn = stage.connect(server)
    dead, driver = stage.opened(server), stage.drivers[0]
    driver.do("open", manager="m", at=server.at)
    computes(dead, "m", "report", lease_ms=500)
    waiter = ask(driver, "m", "report", value="second")
    # On a busy machine, the lease may end first, before the holder can renew it.
    until("it waits, or has computed", lambda: conn.info("report")["waiters"] or waiter.is_answered)
    dead.kill()
    assert got(waiter) == ("second", True)


@scenario("single_flight", "cancel", rules="G3 A5 A8")
def a_cancelled_caller_leaves_nothing(stage):
    driver, both = places(stage)
    other = stage.driver()
    for place in both:
        place.open(other)
        holder = computes(driver, place.first, "report")
        waiter = ask(driver, place.second, "report")
        place.queued("report", 1)
        driver.do("cancel", of=waiter.number)
        with fails("cancelled"):
            waiter.get()
        until("it has left the queue", lambda place=place: place.waiters("report") == 0)
        second = ask(other, place.first, "report", scope=place.first)
        place.queued("report", 1, asked=2)
        third = ask(other, place.second, "report")
        place.queued("report", 2, asked=3)
        driver.do("cancel", of=holder.number)
        with fails("cancelled"):
            holder.get()
        entered(other, second, place.first)
        other.do("leave", scope=place.first)
        assert [got(second), got(third)] == [(f"by {place.first}", True), (f"by {place.first}", False)]
        until("it is free", lambda place=place: place.is_free("report"))


@scenario("single_flight", "background", rules="G2 H5")
def a_loss_stops_compute_but_a_value_needs_no_lock(stage):
    driver, both = places(stage)
    begun = []
    for place in both:
        for stays in (False, True):
            key, scope = f"report {stays}", f"{place.first} {stays}"
            holder = computes(driver, place.first, key, scope, stays=stays, lease_ms=1000)
            begun.append((place, stays, key, scope, holder))
            place.conn.call("DEL", key)
    for place, stays, key, scope, holder in begun:
        driver.event("lost", scope=scope)
        driver.event("stopped", scope=scope)
        if stays:
            driver.do("leave", scope=scope)
            assert got(holder) == (f"by {place.first}", True)
        else:
            with fails("lost", key):
                holder.get()
        assert place.is_free(key)


@scenario("single_flight", rules="G5 S4")
def asking_within_the_computation_is_a_misuse(stage):
    driver, both = places(stage)
    for place in both:
        computing = computes(driver, place.first, "report")
        with fails("misuse", "report"):
            driver.do("again", scope=place.first)
        driver.do("leave", scope=place.first)
        assert got(computing) == (f"by {place.first}", True)
        if "deadlock" in driver.ready["can"]:
            held = driver.begin("scope", manager=place.first, scope=f"{place.first}-held", key="held", lease_ms=LONG_LEASE)
            driver.event("entered", scope=f"{place.first}-held")
            with fails("misuse", "held"):
                ask(driver, place.first, "held", within=f"{place.first}-held").get()
            driver.do("leave", scope=f"{place.first}-held")
            held.get()
        assert place.is_free("report") and place.is_free("held")


@scenario("single_flight", rules="G1 A1")
def bad_arguments_are_named_and_nothing_is_sent(stage):
    driver, (place, _) = places(stage)
    place.conn.call("CONFIG", "RESETSTAT")
    played = 0
    for name, bad in (("wait", {"wait_ms": 0}), ("wait", {"wait_ms": -1}), ("lease", {"lease_ms": 0}),
                      ("lease", {"lease_ms": 11 * 365 * 86400 * 1000}), ("owner", {"owner": "two words"}),
                      ("key", {"key": "k" * 4097})):
        try:
            ask(driver, "m", **{"key": "report", **bad}).get()
        except Cannot:
            continue
        except Failure as error:
            assert error.kind == "argument" and name in error.text, (bad, error)
            assert "report" in error.text or name == "key", (bad, error)
        else:
            raise AssertionError(f"no error: {bad}")
        played += 1
    assert played >= 4
    assert "lock." not in place.conn.call("INFO", "commandstats")


@scenario("single_flight", "background", rules="G2 A9")
def the_value_is_passed_on_once_the_server_is_back(stage):
    server = stage.server()
    conn, relay, driver = stage.connect(server), stage.relay(server), stage.drivers[0]
    driver.do("open", manager="far", at=relay.at, timeout_ms=500)
    driver.do("open", manager="m", at=server.at)
    for number, cut in enumerate((relay.down, lambda on=True: on and relay.lose("LOCK.RELEASE"))):
        key = f"report {number}"
        holder = computes(driver, "far", key, key)
        waiter = ask(driver, "m", key)
        waits(conn, key)
        cut()
        driver.do("leave", scope=key)
        assert got(holder) == ("by far", True)
        cut(False)
        assert got(waiter) == ("by far", False)
        assert conn.info(key)["state"] == "free"


@scenario("single_flight", "background", rules="G1 W11")
def a_queued_attempt_asks_for_the_result_in_each_copy(stage):
    server = stage.server()
    conn, monitor = stage.connect(server), stage.connect(server)
    relay = stage.relay(server)
    driver, other = stage.opened(relay), stage.opened(server)
    theirs = {key: conn.call("LOCK.ACQUIRE", key, "PX", LONG_LEASE) for key in ("first", "busy")}
    first = driver.begin("acquire", manager="m", hold="first", key="first", lease_ms=LONG_LEASE, wait_ms=LONG_WAIT)
    waits(conn, "first")
    conn.call("LOCK.RELEASE", "first", theirs["first"])
    first.get()  # the connection for a lone wait stays open
    holder = computes(other, "m", "report")
    relay.withhold("SUBSCRIBE")
    monitor.timeout(PATIENCE)
    monitor.call("MONITOR")
    waiter = ask(driver, "m", "report")
    waits(conn, "report")
    driver.begin("acquire", manager="m", hold="busy", key="busy", lease_ms=LONG_LEASE, wait_ms=LONG_WAIT)
    copies, lines = [], monitor.monitored(PATIENCE)
    while not (copies and '"notify"' in copies[-1]):  # until the lone wait has ended
        copies += re.findall(r'"lock.acquire" "report" .*', next(lines))
    joined = next(number for number, copy in enumerate(copies) if '"wait"' in copy)
    assert all('"result"' in copy for copy in copies[joined:]), copies
    relay.heal()
    other.do("leave", scope="m")
    assert got(holder)[1] and not got(waiter)[1]
