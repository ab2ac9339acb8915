"""A server that refuses every command for a while: attempts continue, and releases are done later."""

import contextlib
import os

from driver import Failure
from resp import Refusal
from scenarios.holding import fails
from stage import LONG_WAIT, Skip, is_free, scenario, until


@contextlib.contextmanager
def busy(stage, server):
    """A script that does not end."""
    conn, script = stage.connect(server), stage.connect(server)
    conn.call("CONFIG", "SET", "lua-time-limit", 1)
    script.send("EVAL", "while true do end", 0)

    def is_busy():
        try:
            return conn.call("PING") != "PONG"
        except Refusal as error:
            return str(error).startswith("BUSY ")

    until("the server is busy", is_busy)
    try:
        yield
    finally:
        conn.call("SCRIPT", "KILL")
        until("it is no longer busy", lambda: not is_busy())


@contextlib.contextmanager
def misconf(stage, server):
    """A server that cannot save, and therefore accepts no writes."""
    conn = stage.connect(server)
    in_its_way = f"{server.folder}/dump.rdb"
    os.mkdir(in_its_way)
    conn.call("CONFIG", "SET", "save", "3600 1")
    conn.call("BGSAVE")
    until("it could not save", lambda: "rdb_last_bgsave_status:err" in conn.call("INFO", "persistence"))
    try:
        yield
    finally:
        conn.call("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")


def setting(name, bad, good):
    @contextlib.contextmanager
    def trouble(stage, server):
        conn = stage.connect(server)
        conn.call("CONFIG", "SET", name, bad)
        try:
            yield
        finally:
            conn.call("CONFIG", "SET", name, good)

    return trouble


TROUBLES = {
    "BUSY": busy,
    "MISCONF": misconf,
    "OOM": setting("maxmemory", 1, 0),
    "NOREPLICAS": setting("min-replicas-to-write", 1, 0),
}


@scenario("refusals", rules="A7")
def an_attempt_continues_until_the_server_grants_locks_again(stage):
    for code, trouble in TROUBLES.items():
        server = stage.server()
        driver = stage.opened(server)
        driver.do("raw", manager="m", args=["PING"])
        with trouble(stage, server):
            with fails("unavailable", "report", code):
                driver.do("acquire", manager="m", hold="h", key="report", lease_ms=30000)
            with fails("timeout", "report", code):
                driver.do("acquire", manager="m", hold="h", key="report", lease_ms=30000, wait_ms=300)
            hold = driver.begin("acquire", manager="m", hold="h", key="report", lease_ms=30000, wait_ms=LONG_WAIT)
            with fails("timeout", "other", code):  # by then the other has also been refused
                driver.do("acquire", manager="m", hold="o", key="other", lease_ms=30000, wait_ms=300)
            assert not hold.is_answered, code
        hold.get()
        assert driver.do("release", hold="h")["held"] is True
        assert is_free(stage.connect(server), "report")
        driver.end()


@scenario("refusals", "background", rules="A9 H6")
def a_release_that_is_refused_is_made_up_for(stage):
    for code in ("BUSY", "MISCONF"):
        server = stage.server()
        driver = stage.opened(server, timeout_ms=300)
        # These have a wait, because the first replies may take longer than the time-out.
        driver.do("acquire", manager="m", hold="h", key="report", lease_ms=300_000, wait_ms=LONG_WAIT)
        scope = driver.begin("scope", manager="m", scope="s", key="scope", lease_ms=300_000, wait_ms=LONG_WAIT)
        driver.event("entered", scope="s")
        with TROUBLES[code](stage, server):
            try:
                assert driver.do("release", hold="h")["held"] is True, code
                driver.do("leave", scope="s")
                scope.get()
            except Failure as error:
                raise AssertionError(f"{code}: {error}") from error
        conn = stage.connect(server)
        for key in ("report", "scope"):
            until(f"{key} is free", lambda conn=conn, key=key: is_free(conn, key))
        assert driver.events("lost") == []
        driver.end()


@scenario("refusals", rules="A7")
def an_error_that_will_not_pass_is_reported_at_once(stage):
    server = stage.server()
    conn = stage.connect(server)
    try:
        conn.call("CONFIG", "SET", "lock.failover-grace-ms", 3000)
    except Refusal as error:
        raise Skip(f"no settings at run time here: {error}") from None
    driver = stage.opened(server)
    with fails("unavailable", "report", "GRACE lease"):
        driver.do("acquire", manager="m", hold="h", key="report", lease_ms=300_000, wait_ms=LONG_WAIT)
