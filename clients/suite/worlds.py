"""The two places where the scenarios of `serverlock.testing` run: a real server, and the server in memory.

Both offer the same steps, so a scenario is written once. On a real server, time passes on its own and each process has
a driver of its own. In memory, one driver has a manager for each process, and moves the clock.
"""

import functools
import itertools
import time

from driver import Failure
from resp import Refusal
from stage import Skip, until

# On a real server, a refused key needs a lease that is longer than the grace covers.
GRACE_MS = 3000
LONGER_THAN_GRACE_MS = 600_000
FOR_EVER_MS = 3_600_000

_names = itertools.count()


def in_both(steps):
    """A scenario whose steps have the same outcomes on a real server and in memory."""

    @functools.wraps(steps)
    def play(stage):
        for kind in (Real, Memory):
            try:
                steps(kind(stage))
            except AssertionError as error:
                raise AssertionError(f"{kind.__name__}: {error}") from error

    return play


class Process:
    """A manager, on its own or beside others in one driver."""

    def __init__(self, driver, manager, at):
        self.driver, self.manager = driver, manager
        driver.do("open", manager=manager, at=at)

    def begin(self, do, **fields):
        return self.driver.begin(do, manager=self.manager, **fields)

    def do(self, do, **fields):
        return self.begin(do, **fields).get()

    def outcome(self, do, **fields):
        """The kind of the error, or None if there is none."""
        return outcome_of(self.begin(do, **fields))

    def event(self, name, /, **fields):
        return self.driver.event(name, **fields)

    def events(self, name, /, **fields):
        return self.driver.events(name, **fields)

    def enter(self, scope, **fields):
        """Enters a scope. Returns its pending order and its token."""
        pending = self.begin("scope", scope=scope, **fields)
        return pending, self.event("entered", scope=scope)["token"]


def outcome_of(pending):
    try:
        pending.get()
    except Failure as error:
        return error.kind
    return None


class World:
    def waits(self, key, count=1):
        """Waits until this many attempts are queued."""
        until(f"{count} wait for {key}", lambda: self.info(key)["waiters"] == count)

    def by_messages(self, holder, *waiters):
        """
        Makes these processes wait for messages. A lone attempt would wait in pieces, and between two pieces its place
        is only reserved, which delays nobody. So each process has a second attempt, for a lock that stays held.
        """
        holder.do("acquire", hold="busy", key="busy", lease_ms=FOR_EVER_MS)
        for number, process in enumerate(waiters):
            process.begin("acquire", hold=f"never {number}", key="busy", lease_ms=1000, wait_ms=FOR_EVER_MS)
        self.waits("busy", len(waiters))

    def is_free(self, key):
        return self.info(key)["state"] == "free"


class Real(World):
    def __init__(self, stage):
        self._stage = stage
        self._server = stage.server()
        self._conn = stage.connect(self._server)

    def process(self):
        return Process(self._stage.driver(), "m", self._server.at)

    def can(self, ability):
        return ability in self._stage.drivers[0].ready["can"]

    def ms(self, ms):
        """A lease, a wait, or a time to advance by."""
        return self._stage.lease(ms)

    def info(self, key):
        return self._conn.info(key)

    def advance(self, ms):
        time.sleep(ms / 1000)

    def expire(self, key, holder):
        """Stops the holder until its lease has expired."""
        token = self.info(key)["token"]
        holder.driver.pause()
        try:
            until("its lease has expired", lambda: self._is_over(key, token))
        finally:
            holder.driver.resume()

    def _is_over(self, key, token):
        info = self.info(key)
        return info["state"] == "expired" or info["token"] != token

    def lose(self, key, **named):
        """named: `hold` or `scope`."""
        self._conn.call("DEL", key)

    def next_tick(self, period):
        """Goes to the next multiple of the period, in seconds. In memory: to the same place in the next window."""
        seconds, micros = self._conn.call("TIME")
        time.sleep(period - (int(seconds) + int(micros) / 1_000_000) % period)

    def refuse(self, key):
        try:
            self._conn.call("CONFIG", "SET", "lock.failover-grace-ms", GRACE_MS)
        except Refusal as error:
            raise Skip(f"no settings at run time here: {error}") from None

    def allow(self, key):
        self._conn.call("CONFIG", "SET", "lock.failover-grace-ms", 0)


class Memory(World):
    def __init__(self, stage):
        self._driver = stage.driver()
        self._name = f"memory-{next(_names)}"
        self._count = 0

    def process(self):
        self._count += 1
        return Process(self._driver, f"m{self._count}", {"kind": "memory", "name": self._name})

    def can(self, ability):
        return ability in self._driver.ready["can"]

    def ms(self, ms):
        return ms

    def info(self, key):
        reply = self._driver.do("raw", manager="m1", args=["LOCK.INFO", key])["reply"]
        return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))

    def advance(self, ms):
        self._driver.do("advance", name=self._name, ms=ms)

    def expire(self, key, holder):
        self._driver.do("expire", name=self._name, key=key)

    def lose(self, key, **named):
        self._driver.do("lose", name=self._name, **named)

    def next_tick(self, period):
        self.advance(period * 1000)

    def refuse(self, key):
        self._driver.do("refuse", name=self._name, key=key)

    def allow(self, key):
        self._driver.do("allow", name=self._name, key=key)
