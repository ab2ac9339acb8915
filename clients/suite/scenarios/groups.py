"""Sentinel and cluster."""

import time

from scenarios.access import hold_and_wait
from stage import LONG_LEASE, LONG_WAIT, calls, renewed, scenario, until, waits


@scenario("sentinel", rules="A6 W1")
def sentinel_leads_to_the_master(stage):
    group = stage.sentinels()
    conn = stage.connect(group.master)
    driver = hold_and_wait(stage, group, conn)
    if "session" in driver.ready["can"]:
        driver.do("acquire", manager="m", hold="s", key="session", lease_ms=30000, session=True)
        assert conn.info("session")["session"] is not None


@scenario("sentinel", rules="A7 W6")
def locks_and_waits_survive_a_failover(stage):
    group = stage.sentinels()
    conn = stage.connect(group.master)
    driver = stage.opened(group, timeout_ms=1000)
    renews = "background" in driver.ready["can"]
    # It is renewed after a third of its lease; the rest is ten times as long as a failover takes.
    driver.do("acquire", manager="m", hold="h", key="held", lease_ms=45_000 if renews else LONG_LEASE)
    conn.call("LOCK.ACQUIRE", "theirs", "PX", 6000)
    waiting = driver.begin("acquire", manager="m", hold="w", key="theirs", lease_ms=300_000, wait_ms=LONG_WAIT)
    waits(conn, "theirs")
    assert conn.call("WAIT", 1, 50_000) == 1
    group.master.kill()
    until("the replica is the master", lambda: group.address() == group.replica.port)
    waiting.get()
    conn = stage.connect(group.replica)
    if renews:
        renewed(conn, 1)
    driver.do("check", hold="h")
    assert conn.info("held")["state"] == conn.info("theirs")["state"] == "held"
    for hold in "hw":
        assert driver.do("release", hold=hold)["held"] is True


@scenario("cluster", rules="A6 W1")
def redirections_of_a_cluster_are_followed(stage):
    cluster = stage.cluster()
    driver = stage.opened(cluster)
    for number in range(6):
        key = f"k{number}"
        conn = stage.connect(cluster.owner(key)[0])
        first = driver.do("acquire", manager="m", hold=f"a{key}", key=key, lease_ms=30000)["token"]
        second = driver.begin("acquire", manager="m", hold=f"b{key}", key=key, lease_ms=30000, wait_ms=LONG_WAIT)
        waits(conn, key)
        assert driver.do("release", hold=f"a{key}")["held"] is True
        assert second.get()["token"] > first
        assert driver.do("verify", hold=f"b{key}")["left_ms"] > 0
        assert driver.do("release", hold=f"b{key}")["held"] is True
    driver.do("acquire", manager="m", hold="all", keys=["{x}1", "{x}2"], lease_ms=30000)
    assert driver.do("release", hold="all")["held"] is True
    if "session" in driver.ready["can"]:
        driver.do("acquire", manager="m", hold="s", key="session", lease_ms=30000, session=True)
        assert driver.do("release", hold="s")["held"] is True


@scenario("cluster", rules="A7")
def a_slot_that_moves_takes_its_lock_along(stage):
    cluster = stage.cluster()
    driver = stage.opened(cluster)
    driver.do("acquire", manager="m", hold="h", key="held", lease_ms=stage.lease(9000))
    conn = stage.connect(cluster.move("held"))
    # In the background, or by a check once a third of the lease has passed.
    until("it is renewed there", lambda: driver.do("check", hold="h") and calls(conn, "lock.extend"))
    assert driver.do("release", hold="h")["held"] is True
    source, _ = cluster.owner("theirs")
    conn = stage.connect(source)
    theirs = conn.call("LOCK.ACQUIRE", "theirs", "PX", LONG_LEASE)
    waiting = driver.begin("acquire", manager="m", hold="w", key="theirs", lease_ms=30000, wait_ms=LONG_WAIT)
    waits(conn, "theirs")
    target = cluster.move("theirs")
    conn = stage.connect(target)
    time.sleep(1)
    assert not waiting.is_answered
    assert conn.call("LOCK.RELEASE", "theirs", theirs) == 1
    waiting.get()
    assert driver.do("release", hold="w")["held"] is True
