"""A manager that is closed while its locks are held or waited for."""

import time

from scenarios.holding import fails
from stage import is_free, scenario, until, waits


@scenario("background", rules="C1")
def a_wait_ends_when_its_manager_is_closed(stage):
    server = stage.server()
    conn = stage.connect(server)
    for count in (1, 3):  # alone, and by NOTIFY
        theirs = conn.call("LOCK.ACQUIRE", "report", "PX", 30000)
        driver = stage.opened(server)
        holds = [driver.begin("acquire", manager="m", hold=f"h{number}", key="report", lease_ms=30000, wait_ms=20000)
                 for number in range(count)]
        waits(conn, "report", count)
        driver.do("close", manager="m")
        began = time.monotonic()
        for hold in holds:
            with fails("misuse", "report"):
                hold.get(5)
        assert time.monotonic() - began < 2, time.monotonic() - began
        until("nobody waits", lambda: conn.info("report")["waiters"] == 0, 5)
        conn.call("LOCK.RELEASE", "report", theirs)
        assert is_free(conn, "report")


@scenario("background", rules="C2 H5")
def a_lock_that_outlives_its_manager_is_lost_when_its_lease_is_over(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    lease = 1000
    scope = driver.begin("scope", manager="m", scope="s", key="report", lease_ms=lease)
    driver.event("entered", scope="s")
    driver.do("close", manager="m")
    closed = time.monotonic()
    driver.event("lost", scope="s", seconds=lease / 1000 + 2)
    driver.event("stopped", scope="s", seconds=2)
    assert time.monotonic() - closed < lease / 1000 + 0.5, "its successor may work by now"
    with fails("lost", "report"):
        scope.get(5)
    until("nobody renews it", lambda: conn.info("report")["state"] != "held", 5)


@scenario("background", rules="C2")
def a_lock_can_be_released_after_its_manager_was_closed(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    driver.do("acquire", manager="m", hold="h", key="report", lease_ms=30000)
    driver.do("close", manager="m")
    assert driver.do("left", hold="h")["left_ms"] > 20000
    assert driver.do("release", hold="h")["held"] is True
    assert is_free(conn, "report")
    with fails("misuse", "report"):
        driver.do("acquire", manager="m", hold="i", key="report", lease_ms=30000)
