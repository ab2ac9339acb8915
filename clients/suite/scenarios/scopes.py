"""A scope belongs to its hold: it applies only while the lock is held, and only to its holders."""

from scenarios.holding import fails
from stage import is_free, scenario


@scenario("scopes", rules="S4")
def what_was_started_in_a_scope_is_a_caller_like_any_other_after_it(stage):
    server = stage.server()
    driver = stage.opened(server)
    scope = driver.begin("scope", manager="m", scope="s", key="report", lease_ms=30000)
    driver.event("entered", scope="s")
    driver.do("spawn", scope="s", worker="w")
    driver.do("leave", scope="s")
    scope.get()
    for turn in range(2):
        driver.do("again", scope="s", worker="w", hold=f"w{turn}")
        assert driver.do("release", hold=f"w{turn}")["held"] is True


@scenario("scopes", rules="S4")
def after_a_release_within_its_scope_the_caller_may_acquire_again(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    scope = driver.begin("scope", manager="m", scope="s", key="report", lease_ms=30000)
    first = driver.event("entered", scope="s")["token"]
    with fails("misuse", "report"):
        driver.do("again", scope="s", hold="h")
    assert driver.do("release", scope="s")["held"] is True
    second = driver.do("again", scope="s", hold="h")["token"]
    assert second > first
    driver.do("leave", scope="s")
    scope.get()
    assert conn.info("report")["token"] == second, "the end of a scope releases only its own hold"
    assert driver.do("release", hold="h")["held"] is True
    assert is_free(conn, "report")


@scenario("scopes", "background", rules="S4 H5")
def after_a_loss_within_its_scope_the_caller_may_acquire_again(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    scope = driver.begin("scope", manager="m", scope="s", key="report", lease_ms=stage.lease(6000), stays=True)
    driver.event("entered", scope="s")
    conn.call("DEL", "report")
    driver.event("lost", scope="s")
    driver.event("stopped", scope="s")
    second = driver.do("again", scope="s", hold="h")["token"]
    driver.do("leave", scope="s")
    with fails("lost", "report"):
        scope.get()
    assert conn.info("report")["token"] == second, "the end of a scope releases only its own hold"
    assert driver.do("release", hold="h")["held"] is True
