"""Acquiring a free lock, holding it, and releasing it."""

import time

from driver import Failure
from stage import LONG_LEASE, LONG_WAIT, Skip, calls, is_free, scenario, until


def fails(kind, *within):
    """Checks that the answer is this error, and that its text contains these words."""

    class Check:
        def __enter__(self):
            return self

        def __exit__(self, _, error, trace):
            assert isinstance(error, Failure), f"no error, or a different one: {error!r}"
            assert error.kind == kind, str(error)
            for word in within:
                assert word in error.text, f"{word!r} is not in: {error.text}"
            self.text = error.text
            return True

    return Check()


@scenario(rules="A6 H6 S5")
def a_free_lock_is_held_and_released_over_the_applications_connection(stage):
    server = stage.server()
    conn = stage.connect(server)
    for protocol in (2, 3):
        driver = stage.opened(server, protocol=protocol)
        driver.do("raw", manager="m", args=["PING"])
        before = 0
        for turn in range(3):
            hold = f"h{turn}"
            token = driver.do("acquire", manager="m", hold=hold, key="report", lease_ms=30000)["token"]
            info = conn.info("report")
            assert (info["state"], info["token"]) == ("held", token) and token > before, info
            assert 20000 < driver.do("check", hold=hold)["left_ms"] <= 30000
            assert driver.do("release", hold=hold)["held"] is True
            assert is_free(conn, "report")
            assert driver.do("left", hold=hold)["left_ms"] == 0
            before = token
        assert len(stage.clients_of(conn)) == 1, stage.clients_of(conn)
        driver.end()


@scenario(rules="A2 A6")
def a_free_lock_takes_two_commands(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    driver.do("acquire", manager="m", hold="first", key="a", lease_ms=30000)
    driver.do("release", hold="first")
    conn.call("CONFIG", "RESETSTAT")
    driver.do("acquire", manager="m", hold="h", key="a", lease_ms=30000)
    driver.do("release", hold="h")
    lines = conn.call("INFO", "commandstats").splitlines()
    ran = {line.split(":")[0].removeprefix("cmdstat_"): line.split("calls=")[1].split(",")[0] for line in lines if "calls=" in line}
    assert {name for name in ran if name.startswith("lock.")} == {"lock.acquire", "lock.release"}, ran
    assert set(ran.values()) == {"1"} and len(ran) <= 3, ran  # CONFIG RESETSTAT is the third


@scenario(rules="A5")
def a_held_lock_is_refused_at_once_and_the_error_names_it(stage):
    server = stage.server()
    conn = stage.connect(server)
    conn.call("LOCK.ACQUIRE", "report", "PX", LONG_LEASE)
    driver = stage.opened(server)
    with fails("refused", "report"):
        driver.do("acquire", manager="m", hold="h", key="report", lease_ms=30000)
    assert conn.info("report")["waiters"] == 0


@scenario(rules="S1")
def owners_keys_of_bytes_and_details_arrive(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    driver.do("acquire", manager="m", hold="h", key={"hex": "00ff20"}, lease_ms=30000, owner="alice")
    assert conn.info(b"\x00\xff ")["owner"] == "alice"
    token = conn.call("LOCK.ACQUIRE", "left", "PX", 1, "OWNER", "bob")
    until("it has expired", lambda: conn.info("left")["state"] == "expired")
    got = driver.do("acquire", manager="m", hold="d", key="left", lease_ms=30000, details=True)
    before = got["predecessor"]
    assert (before["token"], before["owner"]) == (token, "bob") and before["overdue_ms"] >= 0, got
    driver.do("release", hold="d")
    got = driver.do("acquire", manager="m", hold="e", key="left", lease_ms=30000, details=True)
    assert got["predecessor"] is None, got


@scenario(rules="S1")
def recover_takes_only_what_nobody_released(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    with fails("refused", "work"):
        driver.do("acquire", manager="m", hold="h", key="work", lease_ms=30000, recover=True)
    token = conn.call("LOCK.ACQUIRE", "work", "PX", 1, "OWNER", "bob")
    until("it has expired", lambda: conn.info("work")["state"] == "expired")
    got = driver.do("acquire", manager="m", hold="h", key="work", lease_ms=30000, recover=True)
    assert got["predecessor"]["token"] == token, got
    assert driver.do("release", hold="h")["held"] is True


@scenario(rules="S1")
def a_lock_may_have_several_holders_or_several_keys(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    for hold in "ab":
        driver.do("acquire", manager="m", hold=hold, key="page", lease_ms=30000, shared=True)
        driver.do("acquire", manager="m", hold=f"l{hold}", key="pool", lease_ms=30000, limit=2)
    with fails("refused", "page"):
        driver.do("acquire", manager="m", hold="c", key="page", lease_ms=30000)
    with fails("refused", "pool"):
        driver.do("acquire", manager="m", hold="c", key="pool", lease_ms=30000, limit=2)
    token = driver.do("acquire", manager="m", hold="all", keys=["x", "y"], lease_ms=30000)["token"]
    assert conn.info("x")["token"] == conn.info("y")["token"] == token
    with fails("refused", "y", "z"):
        driver.do("acquire", manager="m", hold="c", keys=["z", "y"], lease_ms=30000)
    assert is_free(conn, "z")
    assert driver.do("release", hold="all")["held"] is True
    assert is_free(conn, "x") and is_free(conn, "y")


@scenario("background", rules="H3 H4")
def leases_are_renewed_for_as_long_as_the_work_takes(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    lease = stage.lease(3000)
    for number in range(20):
        driver.do("acquire", manager="m", hold=f"h{number}", key=f"k{number}", lease_ms=lease)
    driver.do("acquire", manager="m", hold="s", key="page", lease_ms=lease, shared=True)
    driver.do("acquire", manager="m", hold="m", keys=["x", "y"], lease_ms=lease)
    time.sleep(2.5 * lease / 1000)
    for hold in ["s", "m"] + [f"h{number}" for number in range(20)]:
        assert driver.do("check", hold=hold)["left_ms"] > 0
        assert driver.do("release", hold=hold)["held"] is True
    assert driver.events("lost") == []
    assert len(stage.clients_of(conn)) <= 2, stage.clients_of(conn)


@scenario(rules="H1")
def verify_extend_and_fenced_ask_the_server(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    driver.do("acquire", manager="m", hold="h", key="{a}lock", lease_ms=30000)
    assert 20000 < driver.do("verify", hold="h")["left_ms"] <= 30000
    driver.do("extend", hold="h", lease_ms=60000)
    assert conn.info("{a}lock")["lease-ms"] > 50000
    assert 40000 < driver.do("left", hold="h")["left_ms"] <= 60000
    assert driver.do("fenced", hold="h", args=["SET", "{a}x", "1"])["reply"] == "OK"
    conn.call("DEL", "{a}lock")
    with fails("lost", "{a}lock"):
        driver.do("fenced", hold="h", args=["SET", "{a}x", "2"])
    assert conn.call("GET", "{a}x") == "1"
    with fails("lost", "{a}lock"):
        driver.do("verify", hold="h")


@scenario(rules="H12")
def a_body_that_fails_releases_the_lock_and_its_error_is_raised(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    for key, taken_away in (("a", False), ("b", True)):
        scope = driver.begin("scope", manager="m", scope=key, key=key, lease_ms=30000)
        driver.event("entered", scope=key)
        if taken_away:
            conn.call("DEL", key)
        driver.do("fail", scope=key)
        with fails("work"):
            scope.get()
        assert is_free(conn, key)
    scope = driver.begin("scope", manager="m", scope="c", key="c", lease_ms=30000)
    driver.event("entered", scope="c")
    driver.do("leave", scope="c")
    scope.get()
    assert is_free(conn, "c")


@scenario("background", rules="H5")
def a_lock_that_is_taken_away_stops_the_work(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server, hooks=True)
    scope = driver.begin("scope", manager="m", scope="s", key="report", lease_ms=1500)
    driver.event("entered", scope="s")
    driver.do("acquire", manager="m", hold="h", key="other", lease_ms=1500)
    conn.call("DEL", "report", "other")
    theirs = conn.call("LOCK.ACQUIRE", "report", "PX", LONG_LEASE)
    driver.event("stopped", scope="s")
    with fails("lost", "report"):
        scope.get()
    driver.event("lost", scope="s")
    driver.event("lost", hold="h")
    for _ in range(2):
        with fails("lost", "other"):
            driver.do("check", hold="h")
        assert driver.do("left", hold="h")["left_ms"] == 0
    assert driver.do("release", hold="h")["held"] is False
    assert conn.info("report")["token"] == theirs
    time.sleep(1)
    assert len(driver.events("lost", scope="s")) == len(driver.events("lost", hold="h")) == 1
    assert len(driver.events("hook", name="lost")) == 2


@scenario(rules="H5")
def work_that_ends_after_a_loss_causes_an_error(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    scope = driver.begin("scope", manager="m", scope="s", key="report", lease_ms=30000)
    driver.event("entered", scope="s")
    conn.call("DEL", "report")
    driver.do("leave", scope="s")
    with fails("lost", "report"):
        scope.get()


@scenario("background", rules="H7")
def max_hold_ends_the_renewal(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    lease = stage.lease(3000)
    began = time.monotonic()
    driver.do("acquire", manager="m", hold="h", key="report", lease_ms=lease, max_hold_ms=5 * lease // 3)
    lost = driver.event("lost", hold="h")  # otherwise it would be renewed forever
    assert 5 * lease / 3000 <= lost["at"] - began, lost["at"] - began
    until("others can have it", lambda: conn.call("LOCK.ACQUIRE", "report", "PX", 1000))
    assert 1 <= calls(conn, "lock.extend") <= 5  # three per lease, until five of them have passed


@scenario("background", rules="H11")
def at_least_keeps_others_out_and_the_caller_continues(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    began = time.monotonic()
    driver.do("acquire", manager="m", hold="h", key="cron", lease_ms=300_000, at_least_ms=3000)
    assert driver.do("release", hold="h")["held"] is True
    assert conn.info("cron")["state"] == "held" or time.monotonic() - began >= 3
    until("it is free", lambda: is_free(conn, "cron"))
    assert time.monotonic() - began >= 3


@scenario("scopes", rules="S4")
def the_same_lock_again_in_its_own_scope_is_a_clear_error(stage):
    server = stage.server()
    driver = stage.opened(server)
    scope = driver.begin("scope", manager="m", scope="s", key="report", lease_ms=30000, wait_ms=300_000)
    driver.event("entered", scope="s")
    with fails("misuse", "report"):
        driver.do("again", scope="s")
    driver.do("leave", scope="s")
    scope.get()


@scenario(rules="H6")
def releasing_twice_is_a_clear_error(stage):
    server = stage.server()
    driver = stage.opened(server)
    if "consumes" in driver.ready["can"]:
        raise Skip("releasing twice does not compile")
    driver.do("acquire", manager="m", hold="h", key="report", lease_ms=30000)
    driver.do("release", hold="h")
    with fails("misuse", "report"):
        driver.do("release", hold="h")


@scenario(rules="S3")
def a_shared_lock_object_gives_each_caller_its_own_hold(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    driver.do("object", manager="m", object="o", key="report", lease_ms=30000, wait_ms=LONG_WAIT)
    tokens = []
    pending = {f"h{n}": driver.begin("acquire", manager="m", object="o", hold=f"h{n}") for n in range(12)}
    while pending:
        granted = until("one gets it", lambda: [hold for hold, it in pending.items() if it.is_answered])
        assert len(granted) == 1, granted
        token = pending.pop(granted[0]).get()["token"]
        assert conn.info("report")["token"] == token
        tokens.append(token)
        assert driver.do("release", hold=granted[0])["held"] is True
    assert len(set(tokens)) == 12
    scopes = [driver.begin("scope", manager="m", object="o", scope=f"s{n}") for n in range(4)]
    for _ in range(4):
        entered = until("one enters", lambda: [e for e in driver.events("entered") if e["scope"] not in tokens])
        assert len(entered) == 1, entered
        tokens.append(entered[0]["scope"])
        driver.do("leave", scope=entered[0]["scope"])
    for scope in scopes:
        scope.get()


@scenario(rules="L2")
def hooks_report_what_happens(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server, hooks=True)
    driver.do("acquire", manager="m", hold="h", key="a", lease_ms=30000)
    with fails("timeout"):
        driver.do("acquire", manager="m", hold="i", key="a", lease_ms=30000, wait_ms=300)
    driver.do("release", hold="h")
    assert driver.event("hook", name="granted")["waited_ms"] < 10_000
    assert driver.event("hook", name="refused")["waited_ms"] >= 250
    assert driver.event("hook", name="released")["held_ms"] >= 250
    assert is_free(conn, "a")
