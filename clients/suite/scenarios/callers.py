"""A caller that asks again for the lock it holds, and who a lock says its holder is."""

import re
import socket

from scenarios.holding import fails
from stage import scenario, until


def places(stage):
    """A server with the module and one without it."""
    return [stage.server(), stage.server(module=False)]


def is_held(other, key="report"):
    """Whether another process is refused."""
    try:
        other.do("acquire", manager="m", hold="probe", key=key, lease_ms=30000)
    except Exception as error:
        assert getattr(error, "kind", None) == "refused", error
        return True
    other.do("release", hold="probe")
    return False


def enter(driver, **fields):
    """A scope of a reentrant lock. Returns its pending order and its token."""
    scope = driver.begin("scope", manager="m", scope="s", key="report", lease_ms=30000, reentrant=True, **fields)
    return scope, driver.event("entered", scope="s")["token"]


@scenario("reentrant", rules="S9")
def a_reentrant_caller_gets_the_same_hold_again(stage):
    for server in places(stage):
        driver, other = stage.opened(server), stage.opened(server)
        scope, token = enter(driver)
        assert driver.do("again", scope="s", nested=True)["token"] == token
        assert is_held(other), "only the end of the outermost scope releases the lock"
        assert driver.do("again", scope="s", hold="h")["token"] == token
        assert driver.do("release", hold="h")["held"] is True
        assert is_held(other)
        driver.do("leave", scope="s")
        scope.get()
        assert not is_held(other)
        driver.kill()


@scenario("reentrant", rules="S9")
def a_reentrant_lock_excludes_other_callers(stage):
    driver = stage.opened(stage.server())
    scope, token = enter(driver)
    with fails("refused", "report"):
        driver.do("acquire", manager="m", hold="h", key="report", lease_ms=30000, reentrant=True)
    driver.do("leave", scope="s")
    scope.get()
    newer = driver.do("acquire", manager="m", hold="h", key="report", lease_ms=30000, reentrant=True)["token"]
    assert newer > token


@scenario("reentrant", rules="S9")
def a_lock_has_to_be_released_as_many_times_as_it_was_acquired(stage):
    server = stage.server()
    driver, other = stage.opened(server), stage.opened(server)
    scope, _ = enter(driver)
    for hold in ("a", "b"):
        driver.do("again", scope="s", hold=hold)
    for hold in ("a", "b"):
        assert driver.do("release", hold=hold)["held"] is True
        assert is_held(other)
    assert driver.do("release", scope="s")["held"] is True
    assert not is_held(other)
    driver.do("leave", scope="s")
    scope.get()


@scenario("reentrant", rules="S9")
def the_end_of_the_outermost_scope_releases_what_was_acquired_again(stage):
    server = stage.server()
    driver, other = stage.opened(server), stage.opened(server)
    scope, _ = enter(driver)
    driver.do("again", scope="s", hold="h")
    driver.do("leave", scope="s")
    scope.get()
    assert not is_held(other)
    with fails("lost", "report"):
        driver.do("check", hold="h")
    with fails("misuse", "report"):
        driver.do("release", hold="h")


@scenario("reentrant", "background", rules="S9 H5")
def after_a_loss_a_reentrant_caller_gets_a_new_hold(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    scope = driver.begin(
        "scope", manager="m", scope="s", key="report", lease_ms=stage.lease(6000), reentrant=True, stays=True
    )
    first = driver.event("entered", scope="s")["token"]
    conn.call("DEL", "report")
    driver.event("lost", scope="s")
    driver.event("stopped", scope="s")
    second = driver.do("again", scope="s", hold="h")["token"]
    assert second > first
    driver.do("leave", scope="s")
    with fails("lost", "report"):
        scope.get()
    assert conn.info("report")["token"] == second
    assert driver.do("release", hold="h")["held"] is True


def belongs_to(pid, driver):
    """Whether this process is the driver's, or a child of it."""
    while pid > 1 and pid != driver.pid:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            pid = int(stat.read().rsplit(")", 1)[1].split()[1])
    return pid == driver.pid


@scenario("default_owner", rules="S10")
def a_lock_without_an_owner_names_its_host_and_process(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    kinds = {"lock": {}, "page": {"shared": True}, "pool": {"limit": 2}, "all": {"keys": ["all", "rest"]}}
    for key, fields in kinds.items():
        driver.do("acquire", manager="m", hold=key, lease_ms=30000, **{"key": key, **fields})
        owner = conn.info(key)["owner"]
        name = re.fullmatch(re.escape(socket.gethostname()) + r":(\d+)", owner)
        assert name and belongs_to(int(name[1]), driver), owner


@scenario("default_owner", rules="S10")
def an_owner_that_is_switched_off_is_not_sent(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    driver.do("acquire", manager="m", hold="h", key="report", lease_ms=30000, owner=None)
    assert conn.info("report")["owner"] is None
    # A client of the classic sequence reads the value as a number.
    assert re.fullmatch(r"\d{10}\.\d+", conn.call("GET", "report")), conn.call("GET", "report")


@scenario("default_owner", "leader", rules="S10 L3")
def a_leader_names_its_host_and_process(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    driver.do("lead", manager="m", leader="l", key="chief", lease_ms=stage.lease(6000))
    driver.event("elected", leader="l")
    assert conn.info("chief")["owner"].startswith(socket.gethostname() + ":"), conn.info("chief")


@scenario("recover_free", rules="S1")
def recovering_a_free_lock_says_that_it_is_free(stage):
    for server in places(stage):
        driver, other = stage.opened(server), stage.opened(server)
        with fails("refused", "work", "free"):
            driver.do("acquire", manager="m", hold="h", key="work", lease_ms=30000, recover=True)
        other.do("acquire", manager="m", hold="h", key="work", lease_ms=30000)
        with fails("refused", "work") as refused:
            driver.do("acquire", manager="m", hold="h", key="work", lease_ms=30000, recover=True)
        assert "free" not in refused.text, refused.text
        driver.kill()


@scenario("recover_free", rules="S1")
def recovering_without_the_right_to_inspect_is_refused_like_any_other(stage):
    server = stage.server()
    conn = stage.connect(server)
    conn.call("ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-lock.info")
    driver = stage.driver()
    driver.do("open", manager="m", at={**server.at, "user": "app", "password": "secret"})
    with fails("refused", "work"):
        driver.do("acquire", manager="m", hold="h", key="work", lease_ms=30000, recover=True)
    until("nothing is left behind", lambda: conn.info("work")["state"] == "free")
