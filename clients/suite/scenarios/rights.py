"""The users that docs/OPERATING.md and docs/PORTABLE.md define for applications: all that a package does is allowed."""

from resp import queue_of
from scenarios.holding import fails
from scenarios.once import DAY, far_from_the_end
from scenarios.waiting import end_of_solitude, need_notify
from servers import ROOT
from stage import LONG_LEASE, LONG_WAIT, calls, is_free, scenario, until, waits

# Connections of one manager, including the application's: at most two for commands, and one for waits.
MOST = 3


def documented(stage, conn, server, page, user):
    """Creates the user as the page says, for the driver's client library. Returns a driver connected as this user."""
    lines = (ROOT / "docs" / page).read_text("utf-8").splitlines()
    conn.call(*next(line.split() for line in lines if line.startswith(f"ACL SETUSER {user} ")))
    conn.call("ACL", "SETUSER", user, "+set")  # what `fenced` runs here
    # Rows such as: | ioredis | INFO, for its ready check | `+info` |
    rows = [line.split(" | ") for line in (ROOT / "docs/OPERATING.md").read_text("utf-8").splitlines() if line.endswith("` |")]
    rights = {row[0].removeprefix("| "): row[-1].strip("` |").replace("\\|", "|") for row in rows}
    driver = stage.driver()
    if driver.ready["client"] in rights:
        conn.call("ACL", "SETUSER", user, rights[driver.ready["client"]])
    if conn.call("COMMAND", "INFO", "CLIENT|SETINFO")[0] is not None:
        conn.call("ACL", "SETUSER", user, rights["most, on Redis 7.2 and later"])
    driver.do("open", manager="m", at={**server.at, "user": user, "password": "secret"})
    return driver


def denied(conn, user):
    """The commands, keys and channels that this user was denied."""
    entries = [dict(zip(entry[::2], entry[1::2], strict=True)) for entry in conn.call("ACL", "LOG")]
    return [f"{entry['reason']} {entry['object']}" for entry in entries if entry["username"] == user]


def wait_and_get(driver, conn, key):
    """Somebody else holds the lock, and releases it once the driver is waiting."""
    theirs = conn.call("LOCK.ACQUIRE", key, "PX", LONG_LEASE)
    hold = driver.begin("acquire", manager="m", hold="w", key=key, lease_ms=30000, wait_ms=LONG_WAIT)
    waits(conn, key)
    conn.call("LOCK.RELEASE", key, theirs)
    hold.get()
    assert driver.do("release", hold="w")["held"] is True


def hold_ask_and_release(driver, key):
    """Uses a free lock, as the module and the script allow."""
    driver.do("acquire", manager="m", hold="h", key=key, lease_ms=30000, owner="alice", details=True)
    driver.do("extend", hold="h", lease_ms=60000)
    assert driver.do("verify", hold="h")["left_ms"] > 0
    assert driver.do("fenced", hold="h", args=["SET", f"{key}:done", "1"])["reply"] == "OK"
    assert driver.do("release", hold="h")["held"] is True


def runs_once(driver, key):
    """The outcome of a call for the current tick."""
    return driver.do("once", manager="m", key=key, period_ms=DAY * 1000)["outcome"]


@scenario("once", rules="O1 O2")
def once_needs_the_right_to_ask_for_the_time(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = documented(stage, conn, server, "OPERATING.md", "app")
    far_from_the_end(conn)
    conn.call("ACL", "SETUSER", "app", "-time", "-lock.info")
    with fails("denied", "app:job"):
        runs_once(driver, "app:job")
    assert denied(conn, "app") == ["command time"] and is_free(conn, "app:job")
    conn.call("ACL", "SETUSER", "app", "+time")
    assert [runs_once(driver, "app:job") for _ in "ab"] == ["ran", "elsewhere"]


@scenario(rules="A6 W1 W5 W2")
def the_documented_user_is_denied_nothing(stage):
    server = stage.server()
    conn = stage.connect(server)
    need_notify(conn)
    driver = documented(stage, conn, server, "OPERATING.md", "app")
    can = driver.ready["can"]
    hold_ask_and_release(driver, "app:report")
    wait_and_get(driver, conn, "app:report")
    if "background" in can:
        end_of_solitude(driver, conn, "app:solitude")
        wait_and_get(driver, conn, "app:report")
        assert calls(conn, "subscribe") == 1
        until("the idle subscription is pinged", lambda: calls(conn, "ping"))
    theirs = conn.call("LOCK.ACQUIRE", "app:report", "PX", LONG_LEASE)
    with fails("refused"):
        driver.do("acquire", manager="m", hold="x", key="app:report", lease_ms=30000)
    with fails("timeout"):
        driver.do("acquire", manager="m", hold="x", key="app:report", lease_ms=30000, wait_ms=100)
    if "cancel" in can:
        pending = driver.begin("acquire", manager="m", hold="x", key="app:report", lease_ms=30000, wait_ms=LONG_WAIT)
        waits(conn, "app:report")
        driver.do("cancel", of=pending.number)
        with fails("cancelled"):
            pending.get()
        until("it has left the queue", lambda: conn.info("app:report")["waiters"] == 0)
    conn.call("LOCK.RELEASE", "app:report", theirs)
    for hold in "ab":
        driver.do("acquire", manager="m", hold=hold, key="app:page", lease_ms=30000, shared=True)
        driver.do("acquire", manager="m", hold=f"l{hold}", key="app:pool", lease_ms=30000, limit=2)
    driver.do("acquire", manager="m", hold="all", keys=["app:x", "app:y"], lease_ms=30000)
    driver.do("extend", hold="all", lease_ms=60000)
    for hold in ("a", "b", "la", "lb", "all"):
        assert driver.do("release", hold=hold)["held"] is True
    conn.call("LOCK.ACQUIRE", "app:left", "PX", 1)
    until("it has expired", lambda: conn.info("app:left")["state"] == "expired")
    driver.do("acquire", manager="m", hold="r", key="app:left", lease_ms=30000, recover=True)
    assert driver.do("release", hold="r")["held"] is True
    if "session" in can:
        driver.do("acquire", manager="m", hold="s", key="app:session", lease_ms=30000, session=True)
        assert driver.do("release", hold="s")["held"] is True
    if "leader" in can:
        driver.do("lead", manager="m", leader="l", key="app:leader", lease_ms=30000)
        token = driver.event("elected", leader="l")["token"]
        driver.do("observe", manager="m", observer="o", key="app:leader", lease_ms=30000)
        driver.event("leader", observer="o", token=token)
    if "once" in can:
        far_from_the_end(conn)
        assert [runs_once(driver, "app:job") for _ in "ab"] == ["ran", "elsewhere"]
        assert (calls(conn, "time"), calls(conn, "lock.info")) >= (1, 1)
    assert denied(conn, "app") == []
    with fails("denied", "theirs"):
        driver.do("acquire", manager="m", hold="x", key="theirs", lease_ms=30000)


@scenario("background", rules="W8")
def fifty_waits_of_the_documented_user_use_three_connections(stage):
    server = stage.server()
    conn = stage.connect(server)
    need_notify(conn)
    driver = documented(stage, conn, server, "OPERATING.md", "app")
    most = 0

    def seen(done):
        nonlocal most
        most = max(most, sum(client["user"] == "app" for client in stage.clients_of(conn)))
        return done

    theirs = conn.call("LOCK.ACQUIRE", "app:report", "PX", LONG_LEASE)
    holds = [driver.begin("acquire", manager="m", hold=f"h{n}", key="app:report", lease_ms=LONG_LEASE, wait_ms=LONG_WAIT)
             for n in range(50)]
    until("all wait", lambda: seen(conn.info("app:report")["waiters"] == 50))
    until("nobody blocks", lambda: seen("blocked_clients:0" in conn.call("INFO", "clients")))
    conn.call("LOCK.RELEASE", "app:report", theirs)
    left = set(range(50))
    while left:
        number = until("one gets it", lambda: seen([n for n in left if holds[n].is_answered]))[0]
        holds[number].get()
        assert driver.do("release", hold=f"h{number}")["held"] is True
        left.discard(number)
    assert most <= MOST, most
    assert denied(conn, "app") == []


@scenario(rules="W9")
def without_the_right_to_the_channel_the_documented_user_waits_all_the_same(stage):
    server = stage.server()
    conn = stage.connect(server)
    need_notify(conn)
    driver = documented(stage, conn, server, "OPERATING.md", "app")
    conn.call("ACL", "SETUSER", "app", "resetchannels")
    theirs = conn.call("LOCK.ACQUIRE", "app:report", "PX", LONG_LEASE)
    pair = {hold: driver.begin("acquire", manager="m", hold=hold, key="app:report", lease_ms=30000, wait_ms=LONG_WAIT)
            for hold in "xy"}
    if "polls" not in driver.ready["can"]:
        waits(conn, "app:report", 2)
    conn.call("LOCK.RELEASE", "app:report", theirs)
    while pair:
        hold = until("one of them has it", lambda: next((hold for hold in pair if pair[hold].is_answered), None))
        pair.pop(hold).get()
        assert driver.do("release", hold=hold)["held"] is True
    assert is_free(conn, "app:report")
    assert all(what.startswith("channel serverlock:") for what in denied(conn, "app")), denied(conn, "app")


@scenario(rules="W10 W14")
def the_documented_user_of_the_script_is_denied_nothing(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    driver = documented(stage, conn, server, "PORTABLE.md", "packaged")
    for _ in range(2):
        hold_ask_and_release(driver, "lock:report")
        conn.call("SCRIPT", "FLUSH")
    driver.do("acquire", manager="m", hold="a", key="lock:report", lease_ms=30000)
    waiting = driver.begin("acquire", manager="m", hold="b", key="lock:report", lease_ms=30000, wait_ms=LONG_WAIT)
    if "queue" in driver.ready["can"]:
        waits(conn, "lock:report")
        with fails("timeout"):
            driver.do("acquire", manager="m", hold="x", key="lock:report", lease_ms=30000, wait_ms=300)
    else:
        polled = calls(conn, "evalsha")
        until("it polls", lambda: calls(conn, "evalsha") > polled + 2)
    assert driver.do("release", hold="a")["held"] is True
    waiting.get()
    assert driver.do("release", hold="b")["held"] is True
    if "queue" in driver.ready["can"]:
        for hold in "ab":
            driver.do("acquire", manager="m", hold=hold, key="lock:page", lease_ms=30000, shared=True)
            assert driver.do("fenced", hold=hold, args=["SET", "lock:done", "1"])["reply"] == "OK"
        driver.do("extend", hold="a", lease_ms=60000)
        driver.do("acquire", manager="m", hold="all", keys=["lock:x", "lock:y"], lease_ms=30000)
        driver.do("extend", hold="all", lease_ms=60000)
        for hold in ("a", "b", "all"):
            assert driver.do("release", hold=hold)["held"] is True
        if "background" in driver.ready["can"]:
            until("the idle subscription is pinged", lambda: calls(conn, "ping"))
    if "once" in driver.ready["can"]:
        far_from_the_end(conn)
        assert [runs_once(driver, "lock:job") for _ in "ab"] == ["ran", "elsewhere"]
    assert denied(conn, "packaged") == []
    with fails("denied", "theirs"):
        driver.do("acquire", manager="m", hold="x", key="theirs", lease_ms=30000)


@scenario("queue", rules="W10 W14 Q8")
def without_the_rights_to_the_queue_the_documented_user_of_the_script_polls(stage):
    for missing in ("-zadd", "-zcard", "-subscribe"):
        server = stage.server(module=False)
        conn = stage.connect(server)
        driver = documented(stage, conn, server, "PORTABLE.md", "packaged")
        conn.call("ACL", "SETUSER", "packaged", missing)
        hold_ask_and_release(driver, "lock:report")
        driver.do("acquire", manager="m", hold="a", key="lock:report", lease_ms=30000)
        waiting = driver.begin("acquire", manager="m", hold="b", key="lock:report", lease_ms=30000, wait_ms=LONG_WAIT)
        polled = calls(conn, "evalsha")
        until("it polls", lambda conn=conn, polled=polled: calls(conn, "evalsha") > polled + 3)
        assert driver.do("release", hold="a")["held"] is True
        waiting.get()
        assert driver.do("release", hold="b")["held"] is True
        assert conn.call("EXISTS", "lock:report", queue_of("lock:report")) == 0
        driver.end()
