"""Bad arguments, and keys that do not hold a lock: the error names the lock and the argument, and nothing is sent."""

from driver import Cannot
from scenarios.holding import fails
from stage import scenario

BAD = [
    ("lease", {"lease_ms": 0}),
    ("lease", {"lease_ms": -5000}),
    ("lease", {"lease_ms": None}),
    ("lease", {"lease_ms": "soon"}),
    ("lease", {"lease_ms": 11 * 365 * 86400 * 1000}),
    ("wait", {"wait_ms": -1}),
    ("wait", {"wait_ms": None}),
    ("wait", {"wait_ms": "long"}),
    ("owner", {"owner": "two words"}),
    ("owner", {"owner": ""}),
    ("owner", {"owner": "x" * 129}),
    ("key", {"key": 7}),
    ("key", {"key": None}),
    ("key", {"key": "k" * 4097}),
    ("keys", {"keys": []}),
    ("key", {"keys": ["a", "a"]}),
]


@scenario(rules="A1 S8")
def a_bad_argument_is_named_and_nothing_is_sent(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    driver.do("raw", manager="m", args=["PING"])
    conn.call("CONFIG", "RESETSTAT")
    played = 0
    for name, bad in BAD:
        order = {"key": "report", "lease_ms": 30000, **bad}
        if "keys" in bad:
            del order["key"]
        try:
            with fails("argument", name, *(["report"] if "key" not in bad and "keys" not in bad else [])):
                driver.do("acquire", manager="m", hold="h", **order)
        except AssertionError as error:
            if isinstance(error.__context__, Cannot):
                continue
            raise AssertionError(f"{bad}: {error}") from error
        played += 1
    assert played >= 7
    assert "lock." not in conn.call("INFO", "commandstats")
    for limit in (0, 4097):
        with fails("argument", "report"):
            driver.do("acquire", manager="m", hold="h", key="report", lease_ms=30000, limit=limit)


@scenario(rules="A1")
def a_key_that_holds_something_else_is_a_bad_argument(stage):
    server = stage.server()
    conn = stage.connect(server)
    conn.call("LPUSH", "list", "x")
    driver = stage.opened(server)
    with fails("argument", "list", "WRONGTYPE"):
        driver.do("acquire", manager="m", hold="h", key="list", lease_ms=30000)
    with fails("argument", "list", "WRONGTYPE"):
        driver.do("acquire", manager="m", hold="h", key="list", lease_ms=30000, wait_ms=2000)
    assert conn.call("LLEN", "list") == 1


@scenario(rules="A1 C1")
def a_closed_manager_says_so(stage):
    server = stage.server()
    driver = stage.opened(server)
    driver.do("acquire", manager="m", hold="h", key="a", lease_ms=30000)
    driver.do("close", manager="m")
    with fails("misuse", "report"):
        driver.do("acquire", manager="m", hold="i", key="report", lease_ms=30000)
    assert driver.do("raw", manager="m", args=["PING"])["reply"] in ("PONG", True)
