"""Suspended machines, and wall clocks that are set: no holder believes that its lease lasts longer than it does."""

from scenarios.holding import fails
from stage import calls, scenario, until


@scenario("clock", rules="H1 H2 H5")
def a_suspend_counts_towards_the_lease(stage):
    server = stage.server()
    for has_network in (False, True):
        clock, relay = stage.clock(), stage.relay(server)
        driver = stage.opened(relay, clock=clock)
        key = f"network {has_network}"
        driver.do("acquire", manager="m", hold="h", key=key, lease_ms=300_000)
        scope = driver.begin("scope", manager="m", scope="s", key=f"{key} s", lease_ms=300_000)
        driver.event("entered", scope="s")
        if not has_network:
            relay.black_hole()
        clock.suspend(280)  # more than nine tenths of the lease
        with fails("lost", key):
            driver.do("check", hold="h")
        assert driver.do("left", hold="h")["left_ms"] == 0
        if "background" in driver.ready["can"]:
            driver.event("lost", hold="h")
            driver.event("lost", scope="s")
            driver.event("stopped", scope="s")
        relay.black_hole(False)
        if "background" not in driver.ready["can"]:
            driver.do("leave", scope="s")
        with fails("lost", key):
            scope.get()
        driver.kill()


@scenario("clock", "background", rules="H3")
def a_renewal_that_came_due_during_a_suspend_is_sent_after_it(stage):
    server = stage.server()
    conn = stage.connect(server)
    clock = stage.clock()
    driver = stage.opened(server, clock=clock)
    driver.do("acquire", manager="m", hold="h", key="report", lease_ms=900_000)
    clock.suspend(400)
    left = driver.do("check", hold="h")["left_ms"]
    assert left <= 500_000 or calls(conn, "lock.extend"), left  # a timer may run before this order
    # By the monotonic clock, the renewal would be due in five minutes.
    until("it is renewed", lambda: "cmdstat_lock.extend" in conn.call("INFO", "commandstats"))
    until("its lease is full again", lambda: driver.do("check", hold="h")["left_ms"] > 700_000)
    assert driver.do("release", hold="h")["held"] is True


@scenario("clock", rules="H1")
def a_wall_clock_that_is_set_back_lengthens_no_lease(stage):
    server = stage.server()
    relay, clock = stage.relay(server), stage.clock()
    driver = stage.opened(relay, clock=clock)
    driver.do("acquire", manager="m", hold="h", key="report", lease_ms=300_000)
    relay.black_hole()
    clock.step(-86400)
    before = driver.do("check", hold="h")["left_ms"]
    assert before <= 270_000, before
    clock.suspend(100)
    assert driver.do("left", hold="h")["left_ms"] <= before - 100_000
    clock.suspend(180)
    with fails("lost", "report"):
        driver.do("check", hold="h")
