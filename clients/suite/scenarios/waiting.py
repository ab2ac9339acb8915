"""Waiting in the queue."""

import random
import time

from resp import Refusal
from scenarios.faults import ways_to_lose
from scenarios.holding import fails
from stage import LONG_LEASE, LONG_WAIT, PATIENCE, Skip, calls, is_free, renewed, scenario, until, waits


# Two to four connections for calls, and one for waiting.
FEW = 5


def need_notify(conn):
    """Skips the scenario on a server without NOTIFY."""
    try:
        conn.call("LOCK.ACQUIRE", "probe", "PX", 1, "WAIT", 1, "ID", 1, "NOTIFY", "probe")
    except Refusal as error:
        raise Skip(f"no NOTIFY here: {error}") from None


@scenario(rules="W1 W5")
def a_waiter_gets_the_lock_when_it_is_released(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    for turn in range(5):
        theirs = conn.call("LOCK.ACQUIRE", "report", "PX", LONG_LEASE)
        hold = driver.begin("acquire", manager="m", hold=f"h{turn}", key="report", lease_ms=30000, wait_ms=LONG_WAIT)
        waits(conn, "report")
        time.sleep(0.1)
        assert not hold.is_answered
        before = calls(conn, "lock.acquire")
        assert conn.call("LOCK.RELEASE", "report", theirs) == 1
        token = hold.get()["token"]
        assert calls(conn, "lock.acquire") - before <= 3, "the waiter polls"
        assert conn.info("report")["token"] == token
        assert 20000 < driver.do("left", hold=f"h{turn}")["left_ms"] <= 30000
        assert driver.do("release", hold=f"h{turn}")["held"] is True


@scenario(rules="W1")
def waiters_are_served_in_the_order_in_which_they_came(stage):
    server = stage.server()
    conn = stage.connect(server)
    theirs = conn.call("LOCK.ACQUIRE", "report", "PX", LONG_LEASE)
    drivers = [stage.opened(server) for _ in range(2)]
    holds = []
    for number in range(6):
        driver = drivers[number % 2]
        holds.append((driver, driver.begin(
            "acquire", manager="m", hold=f"h{number}", key="report", lease_ms=30000, wait_ms=LONG_WAIT)))
        waits(conn, "report", number + 1)
    conn.call("LOCK.RELEASE", "report", theirs)
    tokens = []
    for number, (driver, hold) in enumerate(holds):
        tokens.append(hold.get()["token"])
        driver.do("release", hold=f"h{number}")
    assert tokens == sorted(tokens), tokens


@scenario(rules="A5 W7")
def a_wait_that_ends_without_the_lock_leaves_nothing(stage):
    server = stage.server()
    conn = stage.connect(server)
    theirs = conn.call("LOCK.ACQUIRE", "report", "PX", LONG_LEASE)
    driver = stage.opened(server)
    began = time.monotonic()
    with fails("timeout", "report"):
        driver.do("acquire", manager="m", hold="h", key="report", lease_ms=30000, wait_ms=700)
    assert 0.65 <= time.monotonic() - began
    with fails("timeout", "report"):  # the wait has ended when the first reply arrives
        driver.do("acquire", manager="m", hold="h", key="report", lease_ms=30000, wait_ms=0.001)
    until("nobody waits", lambda: conn.info("report")["waiters"] == 0)
    conn.call("LOCK.RELEASE", "report", theirs)
    assert is_free(conn, "report")


@scenario(rules="W7")
def a_wait_that_an_operator_cancels_is_refused(stage):
    server = stage.server()
    conn = stage.connect(server)
    conn.call("LOCK.ACQUIRE", "report", "PX", LONG_LEASE)
    driver = stage.opened(server)
    hold = driver.begin("acquire", manager="m", hold="h", key="report", lease_ms=30000, wait_ms=LONG_WAIT)
    waits(conn, "report")
    time.sleep(0.2)
    queue = conn.map("LOCK.INFO", "report", "FULL")["queue"]
    entry = dict(zip(queue[0][::2], queue[0][1::2], strict=True))
    assert conn.call("LOCK.CANCEL", "report", entry["id"]) == 1
    with fails("refused", "report"):
        hold.get()


@scenario("cancel", rules="A5")
def a_cancelled_wait_leaves_nothing(stage):
    server = stage.server()
    conn = stage.connect(server)
    theirs = conn.call("LOCK.ACQUIRE", "report", "PX", LONG_LEASE)
    driver = stage.opened(server)
    hold = driver.begin("acquire", manager="m", hold="h", key="report", lease_ms=30000, wait_ms=LONG_WAIT)
    waits(conn, "report")
    driver.do("cancel", of=hold.number)
    with fails("cancelled"):
        hold.get()
    until("nobody waits", lambda: conn.info("report")["waiters"] == 0)
    conn.call("LOCK.RELEASE", "report", theirs)
    assert is_free(conn, "report")
    driver.do("acquire", manager="m", hold="i", key="report", lease_ms=30000)


@scenario("cancel", rules="A4 A5")
def cancellation_at_every_point_leaves_nothing(stage):
    server = stage.server()
    conn = stage.connect(server)
    need_notify(conn)  # in older versions, a CANCEL that overtakes its ACQUIRE ends nothing
    conn.call("ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "resetchannels")
    relay = stage.relay(server, delay=0.003)
    for place in (relay.at, {**relay.at, "user": "app", "password": "secret"}):
        cancel_at_every_point(stage, conn, place)


def cancel_at_every_point(stage, conn, place):
    driver = stage.opened(place)
    dice = random.Random(4)
    for turn in range(50):
        key = f"k{turn}"
        theirs = conn.call("LOCK.ACQUIRE", key, "PX", LONG_LEASE) if turn % 2 else None
        hold = driver.begin("acquire", manager="m", hold=key, key=key, lease_ms=30000, wait_ms=LONG_WAIT * (turn % 4 > 0))
        time.sleep(dice.uniform(0, 0.02))
        if theirs and dice.random() < 0.5:
            conn.call("LOCK.RELEASE", key, theirs)
            time.sleep(dice.uniform(0, 0.01))
        driver.do("cancel", of=hold.number)
        try:
            hold.get()
            driver.do("release", hold=key)
        except Exception as error:
            assert getattr(error, "kind", None) in ("cancelled", "refused"), error
        if theirs:
            conn.call("LOCK.RELEASE", key, theirs)
    for turn in range(50):
        until(f"k{turn} is free", lambda turn=turn: is_free(conn, f"k{turn}"))
    assert driver.do("raw", manager="m", args=["ECHO", "hello"])["reply"] == "hello"


@scenario("background", rules="W8 W1")
def a_thousand_waits_use_few_connections(stage):
    server = stage.server()
    conn = stage.connect(server)
    need_notify(conn)
    theirs = {n: conn.call("LOCK.ACQUIRE", f"k{n}", "PX", LONG_LEASE) for n in range(500)}
    driver = stage.opened(server)
    holds = [driver.begin("acquire", manager="m", hold=f"h{n}", key=f"k{n % 500}", lease_ms=300_000, wait_ms=LONG_WAIT)
             for n in range(1000)]
    for n in range(500):
        waits(conn, f"k{n}", 2)
    assert len(stage.clients_of(conn)) <= FEW, len(stage.clients_of(conn))
    for n in range(500):
        conn.call("LOCK.RELEASE", f"k{n}", theirs[n])
    for n in range(500):
        first = until("one of two has it", lambda n=n: [i for i in (n, n + 500) if holds[i].is_answered])
        for i in (first[0], *({n, n + 500} - {first[0]})):
            holds[i].get()
            assert driver.do("release", hold=f"h{i}")["held"] is True
        if n % 100 == 0:
            assert len(stage.clients_of(conn)) <= FEW, len(stage.clients_of(conn))


def end_of_solitude(driver, conn, key="solitude"):
    """Makes two attempts wait at the same time, so that all later ones wait with NOTIFY."""
    theirs = conn.call("LOCK.ACQUIRE", key, "PX", LONG_LEASE)
    pair = {hold: driver.begin("acquire", manager="m", hold=hold, key=key, lease_ms=30000, wait_ms=LONG_WAIT)
            for hold in "xy"}
    waits(conn, key, 2)
    conn.call("LOCK.RELEASE", key, theirs)
    while pair:
        hold = until("one of them has it", lambda: next((hold for hold in pair if pair[hold].is_answered), None))
        pair.pop(hold).get()
        assert driver.do("release", hold=hold)["held"] is True
    until("nobody blocks", lambda: "blocked_clients:0" in conn.call("INFO", "clients"))


@scenario("background", rules="W11 W8")
def a_lone_wait_and_those_that_join_it_use_few_connections(stage):
    server = stage.server()
    conn = stage.connect(server)
    need_notify(conn)
    driver = stage.opened(server)
    theirs = conn.call("LOCK.ACQUIRE", "report", "PX", LONG_LEASE)
    holds = [driver.begin("acquire", manager="m", hold="h0", key="report", lease_ms=30000, wait_ms=LONG_WAIT)]
    waits(conn, "report")
    assert len(stage.clients_of(conn)) <= 2, stage.clients_of(conn)
    for number in range(1, 4):
        holds.append(
            driver.begin("acquire", manager="m", hold=f"h{number}", key="report", lease_ms=30000, wait_ms=LONG_WAIT))
        waits(conn, "report", number + 1)
        assert len(stage.clients_of(conn)) <= FEW, stage.clients_of(conn)
    until("nobody blocks", lambda: "blocked_clients:0" in conn.call("INFO", "clients"))
    waits(conn, "report", 4)
    assert len(stage.clients_of(conn)) <= FEW, stage.clients_of(conn)
    conn.call("LOCK.RELEASE", "report", theirs)
    for number, hold in enumerate(holds):  # in order, the lone one first
        hold.get()
        assert driver.do("release", hold=f"h{number}")["held"] is True
    assert is_free(conn, "report")


@scenario("background", rules="W6")
def a_claim_that_comes_too_late_is_made_up_for_everywhere(stage):
    took = []
    while not took or took[-1] > 2.5:  # its own timer would resend it every five seconds
        assert len(took) < 4, took
        took.append(late_claim(stage))


def late_claim(stage):
    """How long another attempt had to wait after a claim that came too late."""
    server = stage.server()
    conn = stage.connect(server)
    need_notify(conn)
    conn.call("CONFIG", "SET", "lock.claim-ms", 300)
    driver = stage.opened(server)
    end_of_solitude(driver, conn)
    theirs = {key: conn.call("LOCK.ACQUIRE", key, "PX", LONG_LEASE) for key in "ab"}
    late = driver.begin("acquire", manager="m", hold="a", key="a", lease_ms=30000, wait_ms=LONG_WAIT)
    other = driver.begin("acquire", manager="m", hold="b", key="b", lease_ms=30000, wait_ms=LONG_WAIT)
    for key in "ab":
        waits(conn, key)
    successor = stage.connect(server)
    successor.timeout(PATIENCE)
    successor.send("LOCK.ACQUIRE", "a", "PX", 30000, "WAIT", LONG_WAIT)
    waits(conn, "a", 2)
    driver.pause()
    try:
        conn.call("LOCK.RELEASE", "a", theirs["a"])
        token = successor.read()  # the claim did not arrive
        conn.call("LOCK.RELEASE", "b", theirs["b"])
    finally:
        driver.resume()
    resumed = time.monotonic()
    other.get()
    assert not late.is_answered
    conn.call("LOCK.RELEASE", "a", token)
    late.get()
    for key in "ab":
        assert driver.do("release", hold=key)["held"] is True
    return other.answered_at - resumed


@scenario("background", rules="H4 W8")
def a_thousand_locks_are_renewed_over_few_connections(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server, timeout_ms=60_000)

    def acquire_all(lease):
        for hold in [driver.begin("acquire", manager="m", hold=f"h{n}", key=f"k{n}", lease_ms=lease) for n in range(1000)]:
            hold.get()

    # A thousand renewals take about as long as a thousand attempts.
    began = time.monotonic()
    acquire_all(LONG_LEASE)
    lease = max(stage.lease(9000), min(60_000, round(10_000 * (time.monotonic() - began))))
    for released in [driver.begin("release", hold=f"h{n}") for n in range(1000)]:
        assert released.get()["held"] is True
    acquire_all(lease)
    assert len(stage.clients_of(conn)) <= FEW, len(stage.clients_of(conn))
    renewed(conn, 3000)  # this takes as long as a lease
    for n in range(0, 1000, 50):
        driver.do("check", hold=f"h{n}")
    assert driver.events("lost") == []
    assert len(stage.clients_of(conn)) <= FEW, len(stage.clients_of(conn))
    assert conn.info("k999")["state"] == "held"


@scenario("background", rules="W9")
def without_the_right_to_the_channel_waits_block_over_a_few_connections(stage):
    server = stage.server()
    conn = stage.connect(server)
    conn.call("ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "resetchannels")
    driver = stage.opened({**server.at, "user": "app", "password": "secret"})
    theirs = conn.call("LOCK.ACQUIRE", "report", "PX", LONG_LEASE)
    holds = [driver.begin("acquire", manager="m", hold=f"h{n}", key="report", lease_ms=30000, wait_ms=LONG_WAIT)
             for n in range(20)]
    if "polls" not in driver.ready["can"]:
        waits(conn, "report", 2)
    time.sleep(2)
    assert len(stage.clients_of(conn)) <= 14, len(stage.clients_of(conn))
    conn.call("LOCK.RELEASE", "report", theirs)
    left = set(range(20))
    while left:
        granted = until("one gets it", lambda: [n for n in left if holds[n].is_answered])
        for n in granted:
            holds[n].get()
            assert driver.do("release", hold=f"h{n}")["held"] is True
            left.discard(n)


@scenario(rules="W6")
def waits_survive_the_loss_of_their_connection(stage):
    server = stage.server()
    conn = stage.connect(server)
    relay = stage.relay(server)
    theirs = conn.call("LOCK.ACQUIRE", "report", "PX", LONG_LEASE)
    driver = stage.opened(relay)
    hold = driver.begin("acquire", manager="m", hold="h", key="report", lease_ms=30000, wait_ms=LONG_WAIT)
    waits(conn, "report")
    for _ in range(2):
        relay.cut()
        time.sleep(0.3)
    conn.call("LOCK.RELEASE", "report", theirs)
    hold.get()
    assert driver.do("release", hold="h")["held"] is True


@scenario(rules="W6 A7")
def waits_continue_on_a_server_that_was_restarted_empty(stage):
    server = stage.server()
    conn = stage.connect(server)
    conn.call("LOCK.ACQUIRE", "report", "PX", LONG_LEASE)
    driver = stage.opened(server)
    hold = driver.begin("acquire", manager="m", hold="h", key="report", lease_ms=30000, wait_ms=LONG_WAIT)
    waits(conn, "report")
    server.restart()
    hold.get()
    conn = stage.connect(server)
    assert conn.info("report")["state"] == "held"
    assert driver.do("release", hold="h")["held"] is True


def waits_once(conn, key):
    waiters = conn.info(key)["waiters"]
    assert waiters <= 1, waiters
    return waiters == 1


@scenario(rules="A3 W4")
def a_lost_reply_while_waiting_costs_nothing(stage):
    server = stage.server()
    conn = stage.connect(server)
    relay = stage.relay(server)
    for number, close in enumerate(ways_to_lose(stage)):
        key = f"k{number}"
        theirs = conn.call("LOCK.ACQUIRE", key, "PX", LONG_LEASE)
        driver = stage.opened(relay, timeout_ms=700)
        driver.do("raw", manager="m", args=["PING"])
        relay.lose("LOCK.ACQUIRE", close=close)
        hold = driver.begin("acquire", manager="m", hold="h", key=key, lease_ms=30000, wait_ms=LONG_WAIT)
        waits(conn, key)
        time.sleep(0.2)
        until("it waits", lambda: waits_once(conn, key))
        conn.call("LOCK.RELEASE", key, theirs)
        token = hold.get()["token"]
        assert conn.info(key)["token"] == token
        assert driver.do("release", hold="h")["held"] is True
        assert is_free(conn, key)
