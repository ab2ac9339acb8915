"""Session locks: those of one caller share a connection, so that the server finds deadlocks.

The order `acquire` with the field `within` runs in the body of that scope, so its caller is the scope's.
"""

import time

from scenarios.holding import fails
from stage import LONG_WAIT, is_free, scenario, until, waits


def enter(driver, key, **fields):
    """A session lock in a scope with the name of its key."""
    scope = driver.begin("scope", manager="m", scope=key, key=key, lease_ms=30000, session=True, **fields)
    driver.event("entered", scope=key)
    return scope


def within(driver, scope, key, wait_ms=LONG_WAIT, **fields):
    order = {"manager": "m", "hold": key, "key": key, "lease_ms": 30000, "session": True, "wait_ms": wait_ms}
    return driver.begin("acquire", within=scope, **order, **fields)


def deadlocks(conn):
    lines = conn.call("INFO", "everything").splitlines()
    return next(int(line.split(":")[1]) for line in lines if line.startswith("lock_deadlocks:"))


def leave(driver, scope, pending):
    driver.do("leave", scope=scope)
    pending.get()


@scenario("deadlock", rules="H9")
def two_programs_that_lock_in_opposite_order_get_a_deadlock_at_once(stage):
    server = stage.server()
    conn = stage.connect(server)
    one, other = stage.opened(server), stage.opened(server)
    scopes = [enter(one, "a"), enter(other, "b")]
    waiting = within(one, "a", "b")
    waits(conn, "b")
    before = deadlocks(conn)
    with fails("deadlock", "a"):
        within(other, "b", "a").get()
    assert deadlocks(conn) == before + 1
    assert conn.info("a")["waiters"] == 0
    assert conn.info("b")["state"] == "held", "a deadlock does not end the caller's other locks"
    leave(other, "b", scopes[1])
    waiting.get()
    assert one.do("release", hold="b")["held"] is True
    leave(one, "a", scopes[0])
    assert is_free(conn, "a") and is_free(conn, "b")


@scenario("deadlock", rules="H9")
def the_session_locks_of_a_caller_share_a_connection(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    scope = enter(driver, "a")
    for key in ("b", "c"):
        within(driver, "a", key).get()
    sessions = {conn.info(key)["session"] for key in "abc"}
    assert len(sessions) == 1 and None not in sessions, sessions
    other = enter(driver, "d")
    assert conn.info("d")["session"] not in sessions, "another caller has a session of its own"
    assert driver.do("release", hold="b")["held"] is True
    driver.do("check", hold="c")
    leave(driver, "a", scope)
    driver.do("check", hold="c")
    (session,) = sessions
    assert conn.info("c")["session"] == session
    assert driver.do("release", hold="c")["held"] is True
    until("its connection is closed", lambda: session not in {int(client["id"]) for client in stage.clients_of(conn)})
    leave(driver, "d", other)


@scenario("deadlock", rules="H9 H5")
def the_end_of_a_session_loses_all_of_its_locks(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    scope = enter(driver, "a", stays=True)
    for key in ("b", "c"):
        within(driver, "a", key).get()
    conn.call("CLIENT", "KILL", "ID", conn.info("a")["session"])
    for name in ({"scope": "a"}, {"hold": "b"}, {"hold": "c"}):
        driver.event("lost", **name)
    for hold in ("b", "c"):
        with fails("lost", hold):
            driver.do("check", hold=hold)
    driver.do("leave", scope="a")
    with fails("lost", "a"):
        scope.get()


@scenario("deadlock", rules="H9 H5")
def a_session_that_ends_during_a_wait_loses_its_locks_and_the_wait_goes_on(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver, holder = stage.opened(server), stage.opened(server)
    holder.do("acquire", manager="m", hold="b", key="b", lease_ms=300_000)
    # A loss stops the body of its own scope, so this scope's lock is not the session's.
    scope = driver.begin("scope", manager="m", scope="s", key="s", lease_ms=300_000)
    driver.event("entered", scope="s")
    within(driver, "s", "a").get()
    waiting = within(driver, "s", "b")
    waits(conn, "b")
    conn.call("CLIENT", "KILL", "ID", conn.info("a")["session"])
    driver.event("lost", hold="a")
    waits(conn, "b")
    holder.do("release", hold="b")
    waiting.get()
    assert driver.do("release", hold="b")["held"] is True
    assert is_free(conn, "b")
    leave(driver, "s", scope)


@scenario("deadlock", rules="H9 A5")
def a_wait_that_times_out_leaves_the_session_as_it_was(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver, holder = stage.opened(server), stage.opened(server)
    holder.do("acquire", manager="m", hold="b", key="b", lease_ms=300_000)
    scope = enter(driver, "a")
    session = conn.info("a")["session"]
    for _ in range(2):
        with fails("timeout", "b"):
            within(driver, "a", "b", 200).get()
        with fails("refused", "b"):
            within(driver, "a", "b", 0).get()
    assert conn.info("b")["waiters"] == 0
    assert conn.info("a")["session"] == session
    holder.do("release", hold="b")
    within(driver, "a", "b").get()
    assert conn.info("b")["session"] == session
    leave(driver, "a", scope)


@scenario("deadlock", "cancel", rules="H9 A5 A8")
def a_cancelled_wait_leaves_the_session_as_it_was(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver, holder = stage.opened(server), stage.opened(server)
    holder.do("acquire", manager="m", hold="b", key="b", lease_ms=300_000)
    scope = enter(driver, "a")
    session = conn.info("a")["session"]
    for _ in range(3):
        began = time.monotonic()
        with fails("cancelled"):
            within(driver, "a", "b", cancel_after_ms=100).get()
        assert time.monotonic() < began + 20
        waits(conn, "b", 0)
    assert conn.info("a")["session"] == session
    driver.do("check", scope="a")
    holder.do("release", hold="b")

    def shares():
        within(driver, "a", "b").get()
        shared = conn.info("b")["session"] == session
        driver.do("release", hold="b")
        return shared

    until("the session is free for the next attempt", shares)
    leave(driver, "a", scope)
    assert is_free(conn, "a") and is_free(conn, "b")


@scenario("deadlock", "background", rules="H9 H3")
def the_locks_of_a_session_are_renewed_while_it_waits(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver, holder = stage.opened(server), stage.opened(server)
    holder.do("acquire", manager="m", hold="b", key="b", lease_ms=300_000)
    lease = stage.lease(3000)
    scope = driver.begin("scope", manager="m", scope="a", key="a", lease_ms=lease, session=True)
    token = driver.event("entered", scope="a")["token"]
    waiting = within(driver, "a", "b")
    waits(conn, "b")
    time.sleep(2 * lease / 1000)
    assert conn.info("a")["token"] == token
    waits(conn, "b")
    holder.do("release", hold="b")
    waiting.get()
    driver.do("check", scope="a")
    leave(driver, "a", scope)


@scenario("deadlock", "cluster", rules="H9")
def each_server_of_a_cluster_has_a_session_of_its_own(stage):
    cluster = stage.cluster()
    driver = stage.opened(cluster)
    scope = enter(driver, "a")
    found = {}
    for key in ("b", "c", "d", "{a}2"):
        within(driver, "a", key).get()
    for key in ("a", "b", "c", "d", "{a}2"):
        owner = cluster.owner(key)[0]
        found.setdefault(owner.port, set()).add(stage.connect(owner).info(key)["session"])
    assert len(found) > 1 and all(len(sessions) == 1 for sessions in found.values()), found
    for key in ("b", "c", "d", "{a}2"):
        assert driver.do("release", hold=key)["held"] is True
    leave(driver, "a", scope)
