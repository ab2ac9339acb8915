"""The queue on a server without the module: lost connections and replies, missing permissions, a cluster, and a module
that comes and goes (W14)."""

import re
import time

from resp import queue_of
from scenarios.by_script import begin, give, nothing_is_left, released, serve_all, stays, take
from scenarios.faults import ways_to_lose
from scenarios.holding import fails
from servers import MODULE
from stage import LONG_LEASE, PATIENCE, calls, is_free, scenario, until, waits


@scenario("queue", rules="W6 W14")
def waits_survive_the_loss_of_their_connection(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    relay = stage.relay(server)
    theirs = take(conn, "report")
    driver = stage.opened(relay)
    hold = begin(driver, "report", "h")
    waits(conn, "report")
    for _ in range(2):
        relay.cut()
        time.sleep(0.3)
    give(conn, "report", theirs)
    hold.get()
    released(driver, "h")
    theirs = take(conn, "report")
    hold = begin(driver, "report", "h")
    waits(conn, "report")
    conn.call("CLIENT", "KILL", "TYPE", "pubsub")
    give(conn, "report", theirs)  # nobody is notified
    hold.get()
    released(driver, "h")
    assert nothing_is_left(conn, "report")


@scenario("queue", rules="A3 W4 W14 Q5")
def a_lost_reply_costs_nothing(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    relay = stage.relay(server)
    for number, close in enumerate(ways_to_lose(stage)):
        key = f"k{number}"
        driver = stage.opened(relay, timeout_ms=700)
        driver.do("acquire", manager="m", hold="first", key="first", lease_ms=30000)
        released(driver, "first")
        theirs = take(conn, key)
        relay.lose("LOCK_ACQUIRE", times=2, close=close)
        hold = begin(driver, key, "h")
        waits(conn, key)
        until("two replies were lost", lambda number=number: relay.lost >= 4 * number + 2)
        assert conn.info(key)["waiters"] == 1
        relay.lose("LOCK_ACQUIRE", close=close)
        give(conn, key, theirs)
        token = hold.get()["token"]
        assert conn.info(key)["token"] == token
        relay.lose("LOCK_RELEASE", close=close)
        released(driver, "h")
        until("it is released", lambda key=key: nothing_is_left(conn, key))
        until("four replies were lost", lambda number=number: relay.lost >= 4 * number + 4)


@scenario("queue", "background", rules="A5 W14")
def commands_left_in_the_sockets_of_a_stopped_server_leave_nothing(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    driver = stage.opened(server, timeout_ms=500)
    driver.do("acquire", manager="m", hold="h", key="first", lease_ms=30000)
    released(driver, "h")
    server.pause()
    try:
        with fails("no_server", "report"):
            driver.do("acquire", manager="m", hold="h", key="report", lease_ms=300_000)
    finally:
        server.resume()
    # A cancel that overtakes the copy of the ACQUIRE ends nothing, so another cancel follows.
    time.sleep(0.3)
    until("the lock is free", lambda: nothing_is_left(conn, "report"))
    time.sleep(0.5)
    assert nothing_is_left(conn, "report"), conn.info("report")


@scenario("queue", "background", "cancel", "pooled", rules="A5 W14 Q5")
def a_copy_that_runs_after_the_cancel_leaves_nothing(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    took = []
    while not took or took[-1] > 1.5:  # then the second cancel may also have arrived before the copy
        assert len(took) < 4, took
        relay = stage.relay(server)
        driver = stage.opened(relay, timeout_ms=5000)
        driver.do("acquire", manager="m", hold="h", key="first", lease_ms=30000)
        released(driver, "h")
        asked = calls(conn, "evalsha")
        relay.strand()
        pending = driver.begin("acquire", manager="m", hold="h", key="report", lease_ms=LONG_LEASE)
        time.sleep(0.3)
        before = [time.monotonic()]  # the last time at which it was not yet cancelled

        def is_cancelled(asked=asked, before=before):
            now = time.monotonic()
            if calls(conn, "evalsha") == asked:
                before.append(now)
            return before[-1] < now

        driver.do("cancel", of=pending.number)
        # Some libraries close the copy's connection only after a call's time-out.
        until("it was cancelled", is_cancelled)
        relay.heal()
        took.append(time.monotonic() - before[-1])
        with fails("cancelled"):
            pending.get()
        until("the copy has run", lambda asked=asked: calls(conn, "evalsha") > asked + 1)
        until("its grant is released", lambda: nothing_is_left(conn, "report"))
        driver.end()


@scenario("queue", rules="W10 W14 Q8")
def without_the_right_to_the_queue_attempts_poll(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    conn.call("ACL", "SETUSER", "app", "on", ">secret", "~report", "~x", "&*", "+@all")
    driver = stage.opened({**server.at, "user": "app", "password": "secret"})
    driver.do("acquire", manager="m", hold="h", key="report", lease_ms=LONG_LEASE)
    driver.do("extend", hold="h", lease_ms=LONG_LEASE)
    assert driver.do("verify", hold="h")["left_ms"] > 0
    assert driver.do("fenced", hold="h", args=["SET", "x", "1"])["reply"] == "OK"
    later = begin(driver, "report", "w")
    asked = calls(conn, "evalsha")
    until("it polls", lambda: calls(conn, "evalsha") > asked + 3)
    assert not later.is_answered and conn.call("EXISTS", queue_of("report")) == 0
    released(driver, "h")
    later.get()
    released(driver, "w")
    with fails("timeout", "report"):
        theirs = take(conn, "report")
        driver.do("acquire", manager="m", hold="x", key="report", lease_ms=30000, wait_ms=300)
    give(conn, "report", theirs)
    for fields in ({"key": "report", "shared": True}, {"key": "report", "limit": 2}, {"keys": ["report", "x"]}):
        with fails("denied", "report"):
            driver.do("acquire", manager="m", hold="x", lease_ms=30000, **fields)
    with fails("denied", "theirs"):
        driver.do("acquire", manager="m", hold="x", key="theirs", lease_ms=30000)
    assert nothing_is_left(conn, "report")


@scenario("queue", rules="W10 W14 Q7")
def a_name_with_a_brace_but_no_hash_tag_has_no_queue(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    driver = stage.opened(server)
    for key in ("a{b", "a}b", "{}x", "x{}y"):
        driver.do("acquire", manager="m", hold="h", key=key, lease_ms=LONG_LEASE)
        later = begin(driver, key, "w")
        time.sleep(0.3)
        assert driver.do("verify", hold="h")["left_ms"] > 0
        assert driver.do("fenced", hold="h", args=["SET", "y", "1"])["reply"] == "OK"
        assert not later.is_answered and conn.call("EXISTS", f"{key}:queue", f"{key}:queue:{{{key}}}") == 0
        released(driver, "h")
        later.get()
        released(driver, "w")
        assert conn.call("EXISTS", key) == 0
    for fields in ({"key": "a{b", "shared": True}, {"key": "a{b", "limit": 2}, {"keys": ["c", "a{b"]}):
        with fails("unavailable", "a{b", "hash tag", "module"):
            driver.do("acquire", manager="m", hold="x", lease_ms=30000, **fields)
    theirs = take(conn, "{42}:report")
    hold = begin(driver, "{42}:report", "h")
    waits(conn, "{42}:report")
    assert conn.call("ZCARD", "{42}:report:queue") == 1
    give(conn, "{42}:report", theirs)
    hold.get()
    released(driver, "h")
    assert nothing_is_left(conn, "{42}:report")


@scenario("queue", rules="W10 W14 Q9")
def without_the_right_to_subscribe_attempts_poll_and_notify_others(stage):
    for right in ("-subscribe", "resetchannels"):
        server = stage.server(module=False)
        conn = stage.connect(server)
        conn.call("ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", right)
        driver = stage.opened({**server.at, "user": "app", "password": "secret"})
        theirs = take(conn, "report")
        holds = {name: begin(driver, "report", name) for name in "ab"}
        polls_alone(stage.connect(server), conn, "report")
        assert not any(hold.is_answered for hold in holds.values())
        # An attempt with the queue as its second key would wait until this one's time to claim has passed.
        stage.connect(server).call("SUBSCRIBE", "stays")
        stays(conn, "report")
        give(conn, "report", theirs)
        until("one gets it", lambda: any(hold.is_answered for hold in holds.values()))
        assert conn.info("report")["waiters"] == 1
        serve_all(driver, holds)
        conn.script("lock_cancel", "report", "ID", 4711, "NOTIFY", "stays")
        theirs = take(conn, "page")
        shared = begin(driver, "page", "s", shared=True)
        time.sleep(0.3)
        assert not shared.is_answered
        give(conn, "page", theirs)
        shared.get()
        released(driver, "s")
        if right == "-subscribe":
            driver.do("acquire", manager="m", hold="h", key="report", lease_ms=LONG_LEASE)
            other = stage.connect(server)
            other.timeout(PATIENCE)
            other.call("SUBSCRIBE", "theirs")
            conn.script("lock_acquire", "report", "PX", 30000, "WAIT", 30000, "ID", 4711, "NOTIFY", "theirs")
            released(driver, "h")
            assert other.read() == ["message", "theirs", "granted 4711 report"]
            assert conn.script("lock_cancel", "report", "ID", 4711, "NOTIFY", "theirs") == 1
        assert nothing_is_left(conn, "report") and nothing_is_left(conn, "page")
        driver.end()


@scenario("queue", rules="Q9 W14")
def attempts_that_lose_the_right_to_subscribe_leave_the_queue_and_poll(stage):
    for right in ("-subscribe", "resetchannels"):
        server = stage.server(module=False)
        conn = stage.connect(server)
        conn.call("ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all")
        driver = stage.opened({**server.at, "user": "app", "password": "secret"})
        theirs = take(conn, "report")
        holds = {}
        for name in "ab":
            holds[name] = begin(driver, "report", name)
            waits(conn, "report", len(holds) if "background" in driver.ready["can"] else 1)
        conn.call("ACL", "SETUSER", "app", right)
        conn.call("CLIENT", "KILL", "TYPE", "pubsub")
        polls_alone(stage.connect(server), conn, "report")
        assert not any(hold.is_answered for hold in holds.values())
        give(conn, "report", theirs)
        until("one gets it", lambda: any(hold.is_answered for hold in holds.values()))
        serve_all(driver, holds)
        assert nothing_is_left(conn, "report")
        driver.end()


def polls_alone(monitor, conn, key):
    """Waits until the attempts keep asking with the lock alone, and none has a place in the queue."""
    monitor.timeout(PATIENCE)
    monitor.call("MONITOR")
    asked, lines = 0, monitor.monitored(PATIENCE)
    while asked < 10:
        asked += bool(re.search(r'"evalsha" "\w+" "1" ', next(lines)))
    monitor.close()
    until("no place is left", lambda: conn.call("EXISTS", queue_of(key)) == 0)


@scenario("queue", rules="W6 W14 Q9")
def without_the_right_to_publish_attempts_ask_again(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    conn.call("ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-publish")
    if conn.call("COMMAND", "INFO", "SPUBLISH")[0] is not None:
        conn.call("ACL", "SETUSER", "app", "-spublish")
    holder, driver = (stage.opened({**server.at, "user": "app", "password": "secret"}) for _ in range(2))
    holder.do("acquire", manager="m", hold="h", key="report", lease_ms=LONG_LEASE)
    holds = {}
    for name in "ab":
        holds[name] = begin(driver, "report", name)
        waits(conn, "report", len(holds))
    released(holder, "h")
    for name, hold in holds.items():
        hold.get()
        released(driver, name)
    assert nothing_is_left(conn, "report")


@scenario("queue", "cluster", rules="A6 W1 W14")
def redirections_of_a_cluster_are_followed(stage):
    cluster = stage.cluster(module=False)
    driver = stage.opened(cluster)
    for number in range(6):
        key = f"k{number}"
        conn = stage.connect(cluster.owner(key)[0])
        theirs = take(conn, key)
        holds = {}
        for name in "ab":
            holds[name] = begin(driver, key, name)
            waits(conn, key, len(holds))
        give(conn, key, theirs)
        for name, hold in holds.items():
            hold.get()
            assert driver.do("verify", hold=name)["left_ms"] > 0
            released(driver, name)
        assert nothing_is_left(conn, key)
    for name in "ab":
        driver.do("acquire", manager="m", hold=name, key="page", lease_ms=30000, shared=True)
    released(driver, "a", "b")
    driver.do("acquire", manager="m", hold="all", keys=["{x}1", "{x}2"], lease_ms=30000)
    released(driver, "all")


@scenario("queue", "cluster", rules="A7 W14 Q10")
def a_slot_that_moves_takes_its_lock_along(stage):
    cluster = stage.cluster(module=False)
    driver = stage.opened(cluster)
    driver.do("acquire", manager="m", hold="h", key="report", lease_ms=LONG_LEASE)
    with cluster.moving("report") as target:  # calls with two keys get TRYAGAIN
        driver.do("extend", hold="h", lease_ms=LONG_LEASE)
        assert driver.do("verify", hold="h")["left_ms"] > 0
        later = begin(driver, "report", "w")
        time.sleep(0.5)
        assert not later.is_answered
        released(driver, "h")
        later.get()
        assert driver.do("verify", hold="w")["left_ms"] > 0
        late = begin(driver, "report", "l")
    conn = stage.connect(target)
    waits(conn, "report")
    released(driver, "w")
    late.get()
    released(driver, "l")
    assert nothing_is_left(conn, "report")


@scenario("queue", "moves", rules="W10 W14")
def the_queue_is_used_once_the_module_is_gone(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    conn.call("LOCK.ACQUIRE", "report", "PX", LONG_LEASE)
    holds = {name: begin(driver, "report", name) for name in "ab"}
    waits(conn, "report", 2)
    server.module = False
    server.restart()
    conn = stage.connect(server)
    serve_all(driver, holds)
    assert nothing_is_left(conn, "report")


@scenario("queue", "moves", rules="W10 W14")
def all_waiting_attempts_move_over_when_the_module_is_loaded(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    theirs = {key: take(conn, key) for key in "ab"}
    drivers = [stage.opened(server) for _ in range(2)]
    holds = {(driver, key): begin(driver, key, key) for key in "ab" for driver in drivers}
    for key in "ab":
        waits(conn, key, 2)
    conn.call("MODULE", "LOAD", MODULE)
    for key in "ab":
        waits(conn, key, 2)  # counted with LOCK.INFO now
    for key in "ab":
        assert conn.call("LOCK.RELEASE", key, theirs[key]) == 1
        left = list(drivers)
        while left:
            driver = until("one gets it", lambda: [it for it in left if holds[it, key].is_answered])[0]
            left.remove(driver)
            token = holds[driver, key].get()["token"]
            assert conn.info(key)["token"] == token
            assert driver.do("verify", hold=key)["left_ms"] > 0
            released(driver, key)
        assert is_free(conn, key)


@scenario("queue", "moves", rules="W9 W10 W14")
def attempts_that_cannot_subscribe_move_over_too(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    conn.call("ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "resetchannels")
    driver = stage.opened({**server.at, "user": "app", "password": "secret"})
    theirs = take(conn, "report")
    holds = {name: begin(driver, "report", name) for name in "ab"}
    time.sleep(0.5)
    conn.call("MODULE", "LOAD", MODULE)
    if "polls" in driver.ready["can"]:
        until("they ask the module", lambda: calls(conn, "lock.acquire") > 4)
    else:
        waits(conn, "report", 2)
    conn.call("LOCK.RELEASE", "report", theirs)
    serve_all(driver, holds)
    assert is_free(conn, "report")


@scenario("queue", "moves", rules="W10 W14")
def kinds_of_locks_change_with_the_module(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    driver = stage.opened(server)

    def get(suffix):
        for number in range(2):
            driver.do("acquire", manager="m", hold=f"s{number}", key=f"page{suffix}", lease_ms=LONG_LEASE, shared=True)
        driver.do("acquire", manager="m", hold="all", keys=[f"x{suffix}", f"y{suffix}"], lease_ms=LONG_LEASE)

    def use():
        for hold in ("s0", "s1", "all"):
            driver.do("extend", hold=hold, lease_ms=LONG_LEASE)
            assert driver.do("verify", hold=hold)["left_ms"] > 0
            assert driver.do("fenced", hold=hold, args=["SET", "z", "1"])["reply"] == "OK"
        released(driver, "s0", "s1", "all")

    get("1")
    conn.call("MODULE", "LOAD", MODULE)
    use()
    until("the module is used", lambda: driver.do("acquire", manager="m", hold="m", key="m", lease_ms=30000)
          and driver.do("release", hold="m") and calls(conn, "lock.acquire"))
    get("2")
    conn.call("MODULE", "UNLOAD", "lock")
    use()
    for key in ("page1", "page2", "x1", "y2"):
        assert nothing_is_left(conn, key)
    hold = begin(driver, "late", "late")
    hold.get()
    released(driver, "late")
