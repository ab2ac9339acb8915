"""Waiting in order, and the other kinds of lock, on a server without the module (W14).

The suite takes part through portable/lock.lua, as one more client of these locks.
"""

import time

from resp import queue_of
from scenarios.holding import fails
from scenarios.waiting import FEW
from stage import LONG_LEASE, LONG_WAIT, PATIENCE, calls, is_free, scenario, until, waits


def take(conn, key, *options):
    """Gets the lock for the suite."""
    token = conn.script("lock_acquire", key, "PX", LONG_LEASE, *options)
    assert isinstance(token, int), token
    return token


def give(conn, key, token):
    """Releases the lock, which notifies the next attempt in the queue."""
    assert conn.script("lock_release", key, token) == 1


def begin(driver, key, hold, **fields):
    """Asks for a lock with a wait."""
    fields = {"lease_ms": LONG_LEASE, "wait_ms": LONG_WAIT, **fields}
    return driver.begin("acquire", manager="m", hold=hold, key=key, **fields)


def stays(conn, key, *kind):
    """Queues an attempt by the suite, so that the queue's key stays when another attempt's wait ends."""
    attempt = ("PX", LONG_LEASE, "WAIT", LONG_WAIT, "ID", 4711, "NOTIFY", "stays", *kind)
    assert conn.script("lock_acquire", key, *attempt)[0] == "WAITING"


def released(driver, *holds):
    for hold in holds:
        assert driver.do("release", hold=hold)["held"] is True


def serve_all(driver, holds):
    """Waits until each of the pending holds gets the lock, and releases it."""
    left = dict(holds)
    while left:
        name = until("one gets it", lambda: [name for name, hold in left.items() if hold.is_answered])[0]
        left.pop(name).get()
        released(driver, name)


def nothing_is_left(conn, key):
    """Whether there is neither a holder nor an attempt."""
    return conn.call("EXISTS", key, queue_of(key)) == 0


@scenario("queue", rules="W1 W5 W14 Q1 Q3")
def waiters_are_served_in_the_order_in_which_they_came(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    theirs = take(conn, "report")
    drivers = [stage.opened(server) for _ in range(2)]
    holds = []
    for number in range(6):
        driver = drivers[number % 2]
        holds.append((driver, begin(driver, "report", f"h{number}")))
        waits(conn, "report", number + 1)
    give(conn, "report", theirs)
    tokens = [theirs]
    for number, (driver, hold) in enumerate(holds):
        tokens.append(hold.get()["token"])
        assert conn.info("report")["token"] == tokens[-1]
        assert not any(later.is_answered for _, later in holds[number + 1:])
        released(driver, f"h{number}")
    assert tokens == sorted(set(tokens)), tokens
    assert nothing_is_left(conn, "report")


@scenario("queue", rules="W5 W14 Q2 Q3")
def nobody_polls(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    theirs = take(conn, "report")
    driver = stage.opened(server)
    holds = {}
    for number in range(4):
        holds[f"h{number}"] = begin(driver, "report", f"h{number}")
        waits(conn, "report", number + 1)
    began, before = time.monotonic(), calls(conn, "evalsha")
    time.sleep(2)
    asked, passed = calls(conn, "evalsha") - before, time.monotonic() - began
    # Each attempt asks once after subscribing, then every 5 s; the second in the queue asks every 2 s. Polling attempts
    # would ask 40 times a second.
    assert asked <= 8 + 3 * passed, (asked, passed)
    give(conn, "report", theirs)
    serve_all(driver, holds)
    assert nothing_is_left(conn, "report")


@scenario("queue", rules="A5 W7 W14 Q4 Q5")
def a_wait_that_ends_leaves_nothing(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    theirs = take(conn, "report")
    stays(conn, "report")
    driver = stage.opened(server)
    for wait_ms in (700, 0.001):
        began = time.monotonic()
        with fails("timeout", "report"):
            driver.do("acquire", manager="m", hold="h", key="report", lease_ms=30000, wait_ms=wait_ms)
        assert 0.95 * wait_ms / 1000 <= time.monotonic() - began
        until("it has left the queue", lambda: conn.info("report")["waiters"] == 1)
    if "cancel" in driver.ready["can"]:
        hold = begin(driver, "report", "c")
        waits(conn, "report", 2)
        driver.do("cancel", of=hold.number)
        with fails("cancelled"):
            hold.get()
        until("it has left the queue", lambda: conn.info("report")["waiters"] == 1)
    give(conn, "report", theirs)  # the remaining attempt's channel has no subscriber
    assert nothing_is_left(conn, "report")


@scenario("queue", rules="W7 W14")
def a_wait_that_an_operator_cancels_is_refused(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    take(conn, "report")
    driver = stage.opened(server)
    hold = begin(driver, "report", "h")
    waits(conn, "report")
    id_, _, channel = conn.call("ZRANGE", queue_of("report"), 0, 0)[0].split(" ", 2)
    assert conn.script("lock_cancel", "report", "ID", id_, "NOTIFY", channel) == 1

    def is_over():
        # The script does not block IDs: a cancel that crosses a copy of the attempt must be repeated.
        conn.script("lock_cancel", "report", "ID", id_, "NOTIFY", channel)
        return hold.is_answered and conn.call("EXISTS", queue_of("report")) == 0

    until("the cancelled wait ends", is_over)
    with fails("refused", "report"):
        hold.get()


@scenario("queue", rules="W14")
def a_killed_waiter_does_not_stop_the_next(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    theirs = take(conn, "report")
    dead, driver = stage.opened(server), stage.opened(server)
    begin(dead, "report", "h")
    waits(conn, "report", 1)
    hold = begin(driver, "report", "h")
    waits(conn, "report", 2)
    dead.kill()
    give(conn, "report", theirs)
    hold.get()
    released(driver, "h")
    assert nothing_is_left(conn, "report")


@scenario("queue", rules="H13 W14")
def the_successor_of_a_killed_holder_learns_of_the_crash(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    dead, driver = stage.opened(server), stage.opened(server)
    got = dead.do("acquire", manager="m", hold="h", key="report", lease_ms=stage.lease(3000), owner="alice")
    hold = begin(driver, "report", "h", details=True)
    waits(conn, "report")
    dead.kill()
    before = hold.get()["predecessor"]
    assert before is not None and (before["token"], before["owner"]) == (got["token"], "alice"), before
    released(driver, "h")
    assert nothing_is_left(conn, "report")


@scenario("queue", rules="W5 W14")
def a_stopped_waiter_holds_up_nobody_and_gets_the_lock_later(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    theirs = take(conn, "report")
    stopped, driver = stage.opened(server), stage.opened(server)
    first = begin(stopped, "report", "h")
    waits(conn, "report", 1)
    second = begin(driver, "report", "h")
    waits(conn, "report", 2)
    stopped.pause()
    try:
        give(conn, "report", theirs)
        second.get()  # the first had two seconds to claim
    finally:
        stopped.resume()
    waits(conn, "report")
    assert not first.is_answered
    released(driver, "h")
    first.get()
    released(stopped, "h")
    assert nothing_is_left(conn, "report")


@scenario("queue", rules="W5 W14")
def other_clients_of_the_queue_are_notified_and_notify_in_turn(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    driver = stage.opened(server)
    listener = stage.connect(server)
    listener.timeout(PATIENCE)
    listener.call("SUBSCRIBE", "theirs")
    attempt = ("PX", LONG_LEASE, "WAIT", LONG_WAIT, "ID", 4711, "NOTIFY", "theirs")
    driver.do("acquire", manager="m", hold="h", key="report", lease_ms=LONG_LEASE)
    for hold in "hi":
        assert conn.script("lock_acquire", "report", *attempt)[0] == "WAITING"
        later = begin(driver, "report", "i") if hold == "h" else None
        if later:
            waits(conn, "report", 2)
        released(driver, hold)
        assert listener.read() == ["message", "theirs", "granted 4711 report"]
        token = conn.script("lock_acquire", "report", *attempt)
        assert isinstance(token, int), token
        assert not later or not later.is_answered
        give(conn, "report", token)
        if later:
            later.get()
    assert nothing_is_left(conn, "report")


@scenario("queue", rules="S1 W14")
def readers_and_writers_share_a_lock_in_order(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    driver, other = stage.opened(server), stage.opened(server)
    for number in range(3):
        driver.do("acquire", manager="m", hold=f"r{number}", key="page", lease_ms=LONG_LEASE, shared=True)
    other.do("acquire", manager="m", hold="r3", key="page", lease_ms=LONG_LEASE, shared=True, owner="bob", details=True)
    assert conn.call("ZCARD", "page") == 4
    with fails("refused", "page"):
        other.do("acquire", manager="m", hold="x", key="page", lease_ms=30000)
    writer = begin(other, "page", "w")
    waits(conn, "page", 1)
    late = {f"l{number}": begin(driver, "page", f"l{number}", shared=True) for number in range(2)}
    waits(conn, "page", 3)
    assert not writer.is_answered
    for number in range(3):
        driver.do("extend", hold=f"r{number}", lease_ms=LONG_LEASE + number)
        assert driver.do("verify", hold=f"r{number}")["left_ms"] > 0
        released(driver, f"r{number}")
    assert not writer.is_answered
    released(other, "r3")
    writer.get()
    assert not any(hold.is_answered for hold in late.values()), "a reader overtook the writer"
    released(other, "w")
    for hold in late.values():
        hold.get()
    assert conn.call("ZCARD", "page") == 2
    released(driver, *late)
    assert nothing_is_left(conn, "page")


@scenario("queue", rules="S1 W14")
def a_limit_admits_only_that_many(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    driver, other = stage.opened(server), stage.opened(server)
    for hold, who in (("a", driver), ("b", other)):
        who.do("acquire", manager="m", hold=hold, key="pool", lease_ms=LONG_LEASE, limit=2)
    with fails("refused", "pool"):
        other.do("acquire", manager="m", hold="x", key="pool", lease_ms=30000, limit=2)
    stays(conn, "pool", "LIMIT", 2)
    with fails("timeout", "pool"):
        other.do("acquire", manager="m", hold="x", key="pool", lease_ms=30000, limit=2, wait_ms=700)
    until("it has left the queue", lambda: conn.info("pool")["waiters"] == 1)
    third = begin(driver, "pool", "c", limit=2)
    waits(conn, "pool", 2)
    assert not third.is_answered
    released(other, "b")
    third.get()
    assert conn.call("ZCARD", "pool") == 2
    released(driver, "a", "c")
    assert nothing_is_left(conn, "pool")


@scenario("queue", rules="H5 H6 W14")
def a_shared_hold_is_fenced_and_verified(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    driver = stage.opened(server)
    for hold in "ab":
        driver.do("acquire", manager="m", hold=hold, key="page", lease_ms=LONG_LEASE, shared=True)
    for hold in "ab":
        assert 20000 < driver.do("verify", hold=hold)["left_ms"] <= LONG_LEASE
        assert driver.do("fenced", hold=hold, args=["SET", "x", hold])["reply"] == "OK"
    released(driver, "a")
    assert driver.do("fenced", hold="b", args=["SET", "x", "again"])["reply"] == "OK"
    conn.call("DEL", "page")
    with fails("lost", "page"):
        driver.do("fenced", hold="b", args=["SET", "x", "late"])
    assert conn.call("GET", "x") == "again"
    assert driver.do("release", hold="b")["held"] is False


@scenario("queue", rules="S1 W14 Q6")
def several_keys_are_all_taken_or_none(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    driver = stage.opened(server)
    keys = ["a", "b", "c"]
    driver.do("acquire", manager="m", hold="all", keys=keys, lease_ms=LONG_LEASE, owner="alice")
    assert len({conn.info(key)["token"] for key in keys}) == 1
    driver.do("extend", hold="all", lease_ms=2 * LONG_LEASE)
    assert driver.do("verify", hold="all")["left_ms"] > LONG_LEASE
    assert driver.do("fenced", hold="all", args=["SET", "x", "1"])["reply"] == "OK"
    released(driver, "all")
    assert all(nothing_is_left(conn, key) for key in keys)
    theirs = take(conn, "b")
    with fails("refused", "a", "b", "c"):
        driver.do("acquire", manager="m", hold="x", keys=keys, lease_ms=30000)
    with fails("timeout", "a", "b", "c"):
        driver.do("acquire", manager="m", hold="x", keys=keys, lease_ms=30000, wait_ms=300)
    hold = driver.begin("acquire", manager="m", hold="all", keys=keys, lease_ms=LONG_LEASE, wait_ms=LONG_WAIT)
    time.sleep(0.3)
    assert not hold.is_answered and is_free(conn, "a") and is_free(conn, "c")
    give(conn, "b", theirs)
    hold.get()
    conn.call("DEL", "b")
    assert driver.do("release", hold="all")["held"] is False
    assert all(nothing_is_left(conn, key) for key in keys)


@scenario("queue", rules="S1 W14")
def a_lock_is_recovered_if_nobody_released_it(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    driver = stage.opened(server)
    with fails("refused", "left"):
        driver.do("acquire", manager="m", hold="r", key="left", lease_ms=30000, recover=True)
    token = conn.script("lock_acquire", "left", "PX", 1, "OWNER", "bob")
    until("it has expired", lambda: conn.info("left")["state"] == "expired")
    got = driver.do("acquire", manager="m", hold="r", key="left", lease_ms=30000, recover=True)
    assert (got["predecessor"]["token"], got["predecessor"]["owner"]) == (token, "bob"), got
    with fails("refused", "left"):
        driver.do("acquire", manager="m", hold="x", key="left", lease_ms=30000, recover=True)
    released(driver, "r")
    assert nothing_is_left(conn, "left")


@scenario("queue", "background", rules="W8 W14")
def a_hundred_waits_use_few_connections(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    theirs = {f"k{number}": take(conn, f"k{number}") for number in range(50)}
    driver = stage.opened(server)
    holds = {key: {f"{key}-{turn}": begin(driver, key, f"{key}-{turn}") for turn in range(2)} for key in theirs}
    for key in theirs:
        waits(conn, key, 2)
    assert len(stage.clients_of(conn)) <= FEW, len(stage.clients_of(conn))
    for key, token in theirs.items():
        give(conn, key, token)
    for key, pair in holds.items():
        serve_all(driver, pair)
        assert nothing_is_left(conn, key)
    assert len(stage.clients_of(conn)) <= FEW, len(stage.clients_of(conn))


@scenario("queue", "prefix", rules="S6 W14")
def the_prefix_of_the_library_applies_to_the_queue(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    for prefix, key in (("app:", "x"), ("{app}:", "x"), ("app:", "{x}:y")):
        name = prefix + key
        driver = stage.opened(server, prefix=prefix)
        theirs = take(conn, name)
        hold = begin(driver, key, "h")
        waits(conn, name)
        give(conn, name, theirs)
        hold.get()
        assert driver.do("verify", hold="h")["left_ms"] > 0
        released(driver, "h")
        driver.do("acquire", manager="m", hold="s", key=key, lease_ms=30000, shared=True)
        assert driver.do("fenced", hold="s", args=["SET", "z", "1"])["reply"] == "OK"
        assert conn.call("GET", f"{prefix}z") == "1"
        released(driver, "s")
        driver.do("acquire", manager="m", hold="all", keys=[f"{key}1", f"{key}2"], lease_ms=30000)
        assert conn.info(f"{name}1")["token"] == conn.info(f"{name}2")["token"] > 0
        released(driver, "all")
        assert nothing_is_left(conn, name) and nothing_is_left(conn, f"{name}1")
        driver.end()
