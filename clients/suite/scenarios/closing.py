"""Closing a manager while its locks are held or waited for."""

from scenarios.holding import fails
from stage import LATE_SUCCESSORS, LONG_LEASE, Successor, is_free, scenario, until, waits


@scenario("background", rules="C1")
def a_wait_ends_when_its_manager_is_closed(stage):
    server = stage.server()
    conn = stage.connect(server)
    for count in (1, 3):  # alone, and with NOTIFY
        theirs = conn.call("LOCK.ACQUIRE", "report", "PX", LONG_LEASE)
        driver = stage.opened(server)
        holds = [driver.begin("acquire", manager="m", hold=f"h{number}", key="report", lease_ms=30000, wait_ms=300_000)
                 for number in range(count)]
        waits(conn, "report", count)
        driver.do("close", manager="m")
        for hold in holds:
            with fails("misuse", "report"):  # and not `timeout`: their waits end early
                hold.get()
        until("nobody waits", lambda: conn.info("report")["waiters"] == 0)
        conn.call("LOCK.RELEASE", "report", theirs)
        assert is_free(conn, "report")


@scenario("background", rules="C2 H5")
def a_lock_that_outlives_its_manager_is_lost_when_its_lease_is_over(stage):
    server = stage.server(*LATE_SUCCESSORS)
    conn = stage.connect(server)
    driver = stage.opened(server)
    lease = stage.lease(5000)
    scope = driver.begin("scope", manager="m", scope="s", key="report", lease_ms=lease)
    driver.event("entered", scope="s")
    successor = Successor(stage, server, "report")
    driver.do("close", manager="m")
    lost, stopped = driver.event("lost", scope="s")["at"], driver.event("stopped", scope="s")["at"]
    with fails("lost", "report"):
        scope.get()
    successor.works_after(lost, stopped)


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
