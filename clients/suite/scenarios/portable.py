"""Servers without the module, and servers where it is loaded later or unloaded."""

import time

from resp import queue_of
from scenarios.by_script import begin, give, nothing_is_left, released, take
from scenarios.holding import fails
from servers import MODULE
from stage import LONG_WAIT, PATIENCE, calls, is_free, scenario, until, waits


@scenario(rules="W10")
def without_the_module_the_same_calls_work_with_the_script(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    driver = stage.opened(server)
    other = stage.opened(server)
    before = 0
    for turn in range(3):
        got = driver.do("acquire", manager="m", hold=f"h{turn}", key="report", lease_ms=stage.lease(3000), owner="alice")
        assert got["token"] > before
        before = got["token"]
        value = conn.call("GET", "report")
        assert f"{before:016}" in value and value.endswith(" alice"), value
        with fails("refused", "report"):
            other.do("acquire", manager="m", hold="h", key="report", lease_ms=30000)
        waiting = other.begin("acquire", manager="m", hold="w", key="report", lease_ms=30000, wait_ms=LONG_WAIT)
        if "background" in driver.ready["can"]:
            time.sleep(stage.lease(3000) / 1000 + 1)
        assert driver.do("verify", hold=f"h{turn}")["left_ms"] > 0
        assert driver.do("fenced", hold=f"h{turn}", args=["SET", "x", str(turn)])["reply"] == "OK"
        assert not waiting.is_answered
        assert driver.do("release", hold=f"h{turn}")["held"] is True
        waiting.get()
        assert other.do("release", hold="w")["held"] is True
        assert conn.call("EXISTS", "report") == 0
    with fails("timeout", "report"):
        driver.do("acquire", manager="m", hold="a", key="report", lease_ms=30000)
        other.do("acquire", manager="m", hold="h", key="report", lease_ms=30000, wait_ms=400)


@scenario(rules="W10")
def what_needs_the_module_says_so(stage):
    server = stage.server(module=False)
    driver = stage.opened(server)
    with fails("unavailable", "report"):
        driver.do("acquire", manager="m", hold="h", key="report", lease_ms=30000, session=True)
    if "queue" not in driver.ready["can"]:
        for fields in ({"shared": True}, {"limit": 2}):
            with fails("unavailable", "report"):
                driver.do("acquire", manager="m", hold="h", key="report", lease_ms=30000, **fields)
        with fails("unavailable", "a", "b"):
            driver.do("acquire", manager="m", hold="h", keys=["a", "b"], lease_ms=30000)
    strict = stage.opened(server, portable=False)
    with fails("unavailable", "report"):
        strict.do("acquire", manager="m", hold="h", key="report", lease_ms=30000)


@scenario(rules="W10")
def scripts_report_predecessors_and_losses_too(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    dead, driver = stage.opened(server), stage.opened(server)
    token = dead.do("acquire", manager="m", hold="h", key="report", lease_ms=1000, owner="alice")["token"]
    dead.kill()
    got = driver.do("acquire", manager="m", hold="h", key="report", lease_ms=1500, wait_ms=LONG_WAIT, details=True)
    assert (got["predecessor"]["token"], got["predecessor"]["owner"]) == (token, "alice"), got
    conn.call("DEL", "report")
    if "background" in driver.ready["can"]:
        driver.event("lost", hold="h")
    assert driver.do("release", hold="h")["held"] is False


@scenario(rules="W10")
def a_server_that_forgets_the_script_costs_nothing(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    driver = stage.opened(server)
    for turn in range(2):  # the script is known from the second turn on
        driver.do("acquire", manager="m", hold=f"h{turn}", key="report", lease_ms=stage.lease(9000))
        driver.do("verify", hold=f"h{turn}")
        for step in ("extend", "verify", "release"):
            conn.call("SCRIPT", "FLUSH")
            driver.do(step, hold=f"h{turn}")
        assert conn.call("EXISTS", "report") == 0
    driver.do("acquire", manager="m", hold="h", key="report", lease_ms=stage.lease(3000))
    conn.call("SCRIPT", "FLUSH")
    if "background" in driver.ready["can"]:
        time.sleep(stage.lease(3000) / 1000 + 1)
    driver.do("check", hold="h")
    conn.call("SCRIPT", "FLUSH")
    assert driver.do("release", hold="h")["held"] is True


@scenario(rules="W10")
def the_module_is_used_once_loaded_and_the_script_once_it_is_gone(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    driver = stage.opened(server)
    driver.do("acquire", manager="m", hold="a", key="report", lease_ms=60000)
    conn.call("MODULE", "LOAD", MODULE)
    assert driver.do("release", hold="a")["held"] is True

    def by_module():
        conn.call("CONFIG", "RESETSTAT")
        driver.do("acquire", manager="m", hold="b", key="report", lease_ms=60000)
        driver.do("release", hold="b")
        return "cmdstat_lock.acquire" in conn.call("INFO", "commandstats") and is_free(conn, "report")

    until("the module is used", by_module)
    driver.do("acquire", manager="m", hold="c", key="report", lease_ms=stage.lease(3000))
    conn.call("MODULE", "UNLOAD", "lock")
    if "background" in driver.ready["can"]:
        time.sleep(stage.lease(3000) / 1000 + 1)
    driver.do("check", hold="c")
    assert driver.do("release", hold="c")["held"] is True
    assert conn.call("EXISTS", "report") == 0


@scenario("moves", rules="W10")
def an_attempt_with_the_script_moves_over_when_the_module_is_loaded(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    driver = stage.opened(server)
    theirs = stage.opened(server)
    theirs.do("acquire", manager="m", hold="h", key="report", lease_ms=60000)
    hold = driver.begin("acquire", manager="m", hold="h", key="report", lease_ms=30000, wait_ms=LONG_WAIT)
    driver.do("raw", manager="m", args=["PING"])
    time.sleep(1)  # the attempt is waiting, or polling
    assert not hold.is_answered
    conn.call("MODULE", "LOAD", MODULE)
    waits(conn, "report", 1)
    late = stage.connect(server)
    late.timeout(PATIENCE)
    late.send("LOCK.ACQUIRE", "report", "PX", 30000, "WAIT", LONG_WAIT)
    waits(conn, "report", 2)
    assert theirs.do("release", hold="h")["held"] is True
    token = hold.get()["token"]
    assert conn.info("report")["token"] == token
    assert driver.do("verify", hold="h")["left_ms"] > 0
    assert driver.do("release", hold="h")["held"] is True
    assert late.read() > token, "a newer waiter overtook it"


@scenario("queue", rules="W6 W14 Q2")
def an_attempt_joins_the_queue_once_it_is_subscribed(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    relay = stage.relay(server)
    theirs = take(conn, "report")
    driver = stage.opened(relay)
    relay.withhold("SUBSCRIBE")
    hold = begin(driver, "report", "h")
    until("it asks again and again", lambda: calls(conn, "evalsha") >= 3)
    # A release would find no subscriber, and pass over an attempt that is in the queue already.
    assert conn.call("EXISTS", queue_of("report")) == 0
    relay.heal()
    waits(conn, "report")
    give(conn, "report", theirs)
    hold.get()
    released(driver, "h")
    assert nothing_is_left(conn, "report")
