"""Bodies that run once for each tick of a period, in one of the processes that ask.

Most scenarios use a period of a day, and begin far from the end of a window. Those that see several ticks use the
shortest period, and act close to the beginning of each tick, which is in the middle of its window.
"""

import math
import time

from driver import Failure
from scenarios.holding import fails
from stage import Skip, calls, renewed, scenario, until

DAY = 86_400.0
SHORTEST = 10.0
# How far from the end of its window a scenario with a long period begins, in seconds.
FAR = 120.0
# How much earlier or later than its window's end a kept lease may end, in seconds.
EARLY, LATE = 0.002, 0.7


def server_now(conn):
    seconds, micros = conn.call("TIME")
    return int(seconds) + int(micros) / 1_000_000


def far_from_the_end(conn, period=DAY):
    """Waits until the window began a while ago and will last for a while. Returns the end of the window."""
    while True:
        now = server_now(conn)
        end = (math.floor(now / period + 0.5) + 0.5) * period
        if end - period + 10 < now < end - FAR:
            return end
        time.sleep(1)


def at_tick(conn, shift=0.0, tick=None):
    """Waits for the beginning of a tick of the shortest period, plus `shift` seconds. Returns the tick."""
    now = server_now(conn)
    if tick is None:
        tick = math.floor((now - shift) / SHORTEST) + 1
    time.sleep(max(0.0, tick * SHORTEST + shift - now))
    return tick


def in_time(conn, tick):
    if server_now(conn) >= (tick + 0.5) * SHORTEST - 1:
        raise Skip("this machine was too slow for the shortest period")


def expires(conn, key):
    """When others may have the lock, by the server's clock: the start of its value, with the module or without."""
    value = conn.call("GET", key)
    return float(value[:17]) if value else 0.0


def is_kept(conn, key, end):
    return -EARLY <= expires(conn, key) - end <= LATE


def servers(stage, *options):
    """A server with the module and one without it."""
    return [stage.server(*(options if has_module else ()), module=has_module) for has_module in (True, False)]


def once(driver, **fields):
    """Calls for the current tick, with a body that does nothing."""
    return driver.begin("once", **{"manager": "m", "key": "job", "period_ms": DAY * 1000, **fields})


def begin(driver, lease_ms=60_000, key="job", **fields):
    """Begins a body that lasts until the order `leave` or `fail`. Its scope has the name of the key."""
    pending = once(driver, key=key, scope=key, lease_ms=lease_ms, **fields)
    until("its body begins or it fails", lambda: driver.events("entered", scope=key) or pending.is_answered)
    if not driver.events("entered", scope=key):
        raise AssertionError(f"no body began: {pending.get()}")
    return pending


def outcome(driver, **fields):
    return once(driver, **fields).get()["outcome"]


@scenario("once", rules="O1 O2 O3")
def one_of_three_processes_runs_each_tick(stage):
    places = dict(zip(("m", "p"), servers(stage), strict=True))
    conns = {name: stage.connect(server) for name, server in places.items()}
    conn = conns["m"]  # the servers share the machine's clock
    drivers = [stage.opened(places["m"]) for _ in range(3)]
    for driver in drivers:
        driver.do("open", manager="p", at=places["p"].at)
    tick = None
    for _ in range(3):
        tick = at_tick(conn, tick=tick and tick + 1)
        for name in places:
            made = [once(driver, manager=name, period_ms=SHORTEST * 1000) for driver in drivers]
            made = [pending.get() for pending in made]
            in_time(conn, tick)
            # Not "recovered": the last tick's lease has ended in the ordinary way.
            assert sorted(it["outcome"] for it in made) == ["elsewhere", "elsewhere", "ran"], made
            assert [it["value"] for it in made if it["value"]] == [f"tick {tick}"], made
            assert is_kept(conns[name], "job", (tick + 0.5) * SHORTEST), (expires(conns[name], "job"), tick)


@scenario("once", "clock", rules="O1")
def processes_with_different_clocks_agree_on_the_tick(stage):
    server = stage.server()
    conn = stage.connect(server)
    drivers = []
    for number, ahead in enumerate((4, 0, -4)):
        clock = stage.clock(f"clock {number}")
        clock.suspend(ahead)
        drivers.append((ahead, stage.opened(server, clock=clock)))
    tick = None
    for _ in range(2):
        outcomes = []
        for ahead, driver in drivers:  # each calls when its own clock shows the beginning of the tick
            tick = at_tick(conn, -ahead, tick if outcomes or tick is None else tick + 1)
            outcomes.append(once(driver, period_ms=SHORTEST * 1000).get())
            if server_now(conn) >= (tick + 0.5) * SHORTEST:
                raise Skip("this machine was too slow for the shortest period")
        assert [it["outcome"] for it in outcomes] == ["ran", "elsewhere", "elsewhere"], outcomes
        assert outcomes[0]["value"] == f"tick {tick}", outcomes


@scenario("once", rules="O2")
def a_tick_that_has_run_is_kept_until_half_way_whatever_the_margin(stage):
    for server in (*servers(stage), stage.server("margin-ms", 0), stage.server("margin-ms", 7000)):
        conn = stage.connect(server)
        driver, other = stage.opened(server), stage.opened(server)
        end = far_from_the_end(conn)
        for rerun in (False, True):
            key = f"job {rerun}"
            pending = begin(driver, key=key, rerun=rerun)
            assert is_kept(conn, key, end) is not rerun, expires(conn, key)
            driver.do("leave", scope=key)
            assert pending.get()["outcome"] == "ran"
            assert is_kept(conn, key, end), (expires(conn, key), end, server.options)
            assert outcome(other, key=key) == "elsewhere"
            assert conn.info(key)["state"] == "held"
        driver.kill()


@scenario("once", rules="O2 S4")
def a_tick_runs_once_in_one_process_too(stage):
    for server in servers(stage):
        driver = stage.opened(server)
        far_from_the_end(stage.connect(server))
        pending = begin(driver)
        assert outcome(driver) == "elsewhere"
        with fails("misuse", "job"):
            driver.do("again", scope="job")
        driver.do("leave", scope="job")
        assert pending.get()["outcome"] == "ran"
        assert [outcome(driver) for _ in range(2)] == ["elsewhere"] * 2
        driver.kill()


@scenario("once", "background", rules="O2 H3")
def the_lease_is_renewed_while_the_body_runs(stage):
    for server in servers(stage):
        conn = stage.connect(server)
        driver, other = stage.opened(server), stage.opened(server)
        end = far_from_the_end(conn)
        lease = stage.lease(4000)
        pending = begin(driver, lease)
        if server.module:
            renewed(conn, 2)
        else:
            time.sleep(1.3 * lease / 1000 + 1)
        assert outcome(other) == "elsewhere"
        driver.do("leave", scope="job")
        assert pending.get()["outcome"] == "ran"
        time.sleep(lease / 2000)  # another renewal would be due
        assert is_kept(conn, "job", end), expires(conn, "job")
        driver.kill()


@scenario("once", rules="O4")
def a_body_that_fails_lets_another_process_run_the_tick(stage):
    for server in servers(stage):
        conn = stage.connect(server)
        driver, other = stage.opened(server), stage.opened(server)
        far_from_the_end(conn)
        for rerun in (True, False):
            key = f"job {rerun}"
            pending = begin(driver, key=key, rerun=rerun)
            assert outcome(other, key=key) == "elsewhere"
            driver.do("fail", scope=key)
            with fails("work"):
                pending.get()
            assert outcome(other, key=key, rerun=rerun) == "ran"
            assert outcome(driver, key=key) == "elsewhere"
        driver.kill()


@scenario("once", rules="O3")
def a_tick_whose_process_died_runs_again_and_is_recovered(stage):
    for server in servers(stage):
        conn = stage.connect(server)
        driver, other = stage.opened(server), stage.opened(server)
        end = far_from_the_end(conn)
        begin(driver, 1000)
        driver.kill()
        assert until("another process runs it", lambda: (it := outcome(other)) != "elsewhere" and it) == "recovered"
        assert is_kept(conn, "job", end), expires(conn, "job")
        assert outcome(other) == "elsewhere"


@scenario("once", rules="O3 O5")
def a_tick_whose_process_died_is_skipped_without_rerun(stage):
    places = servers(stage)
    conns = [stage.connect(server) for server in places]
    others = [stage.opened(server) for server in places]
    drivers = [stage.opened(server) for server in places]
    tick = at_tick(conns[0])
    for driver, other in zip(drivers, others, strict=True):
        try:
            begin(driver, 1000, period_ms=SHORTEST * 1000, rerun=False)
            driver.kill()
            assert outcome(other, period_ms=SHORTEST * 1000, rerun=False) == "elsewhere"
        except (Failure, AssertionError):  # a lease is the rest of the window, and may have ended before its body began
            in_time(conns[0], tick)
            raise
    in_time(conns[0], tick)
    at_tick(conns[0], 3, tick)  # its lease and the margin would have ended by now
    for other, conn in zip(others, conns, strict=True):
        assert outcome(other, period_ms=SHORTEST * 1000) == "elsewhere"
        assert is_kept(conn, "job", (tick + 0.5) * SHORTEST), expires(conn, "job")
    in_time(conns[0], tick)
    at_tick(conns[0], 0, tick + 1)
    for other in others:
        assert outcome(other, period_ms=SHORTEST * 1000) == "ran"


@scenario("once", rules="O2 A9")
def a_lost_reply_to_the_last_extend_keeps_the_tick(stage):
    for server in servers(stage):
        conn = stage.connect(server)
        other = stage.opened(server)
        end = far_from_the_end(conn)
        for closes in (True, False):
            relay = stage.relay(server)
            driver = stage.opened(relay, timeout_ms=1000)
            key = f"job {closes}"
            pending = begin(driver, key=key)
            relay.lose("LOCK.EXTEND" if server.module else "LOCK_EXTEND", close=closes)
            driver.do("leave", scope=key)
            assert pending.get()["outcome"] == "ran"
            assert relay.lost == 1
            until("it is kept", lambda key=key: is_kept(conn, key, end))
            time.sleep(2.5)  # the last copy has been sent
            assert is_kept(conn, key, end), expires(conn, key)
            assert outcome(other, key=key) == "elsewhere"
            driver.kill()


@scenario("once", "background", rules="O2 A9")
def a_tick_is_kept_in_the_background_once_the_server_is_back(stage):
    for server in servers(stage):
        conn = stage.connect(server)
        end = far_from_the_end(conn)
        relay = stage.relay(server)
        driver = stage.opened(relay, timeout_ms=500)
        lease = 300_000
        pending = begin(driver, lease)
        relay.down()
        driver.do("leave", scope="job")
        assert pending.get()["outcome"] == "ran"
        assert not is_kept(conn, "job", end)
        relay.down(False)
        until("it is kept", lambda conn=conn, end=end: is_kept(conn, "job", end))
        driver.kill()


@scenario("once", rules="O1")
def the_time_is_asked_once_for_many_calls(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    far_from_the_end(conn)
    driver.do("raw", manager="m", args=["PING"])
    conn.call("CONFIG", "RESETSTAT")
    for _ in range(2):
        for pending in [once(driver, key=f"job {number}") for number in range(20)]:
            pending.get()
    assert calls(conn, "lock.acquire") == 40
    # After a slow reply, the time is requested once more.
    assert (calls(conn, "time"), calls(conn, "lock.info")) in ((1, 1), (2, 1))


@scenario("once", "cluster", rules="O1 O2")
def each_key_of_a_cluster_has_the_clock_of_its_server(stage):
    for has_module in (True, False):
        cluster = stage.cluster(module=has_module)
        driver, other = stage.opened(cluster), stage.opened(cluster)
        for key in ("a", "b", "c"):
            conn = stage.connect(cluster.owner(key)[0])
            end = far_from_the_end(conn)
            conn.call("CONFIG", "RESETSTAT")
            assert (outcome(driver, key=key), outcome(other, key=key)) == ("ran", "elsewhere")
            assert is_kept(conn, key, end), expires(conn, key)
            if has_module:  # the script asks for the time itself
                assert calls(conn, "time") >= 2
        driver.kill()


@scenario("once", rules="O2 C2")
def a_closed_manager_keeps_the_tick(stage):
    for server in servers(stage):
        conn = stage.connect(server)
        other = stage.opened(server)
        end = far_from_the_end(conn)
        for closes_first in (False, True):
            driver = stage.opened(server)
            key = f"job {closes_first}"
            pending = begin(driver, key=key)
            if closes_first:
                driver.do("close", manager="m")
            driver.do("leave", scope=key)
            assert pending.get()["outcome"] == "ran"
            if not closes_first:
                driver.do("close", manager="m")
            driver.end()
            assert is_kept(conn, key, end), expires(conn, key)
            assert outcome(other, key=key) == "elsewhere"


@scenario("once", "background", rules="O6 H5")
def a_lock_that_is_lost_during_the_body_is_lost_like_any_other(stage):
    for server in servers(stage):
        conn = stage.connect(server)
        driver = stage.opened(server)
        far_from_the_end(conn)
        pending = begin(driver, stage.lease(3000))
        conn.call("DEL", "job")
        driver.event("lost", scope="job")
        driver.event("stopped", scope="job")
        with fails("lost", "job"):
            pending.get()
        assert conn.call("EXISTS", "job") == 0
        driver.kill()


@scenario("once", rules="O1 A1")
def a_period_is_at_least_ten_seconds(stage):
    driver = stage.opened(stage.server())
    with fails("argument", "job", "period"):
        once(driver, period_ms=9999).get()
    with fails("argument", "job", "lease"):
        once(driver, period_ms=SHORTEST * 1000, lease_ms=5001).get()
