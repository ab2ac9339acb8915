"""A scenario's servers, relays and drivers, which end with it; and the list of scenarios."""

import contextlib
import os
import queue
import re
import shutil
import tempfile
import threading
import time

from clock import Clock
from driver import Driver
from relay import Relay
from resp import Connection
from servers import PATIENCE, Cluster, Sentinels, Server, until

SCENARIOS = []

# Module arguments that keep an expired lock from others for five seconds instead of one. So a driver still notices
# the loss in time if a busy machine keeps it from running.
LATE_SUCCESSORS = ("margin-ms", 5_000)

# In ms: a lock's lease, and an attempt's wait, that must outlast everything else in their scenario.
LONG_LEASE = 600_000
LONG_WAIT = 500_000


class Skip(Exception):
    """This language, library or server cannot run the scenario."""


def scenario(*needs, rules=""):
    """Registers a function as a scenario. `needs`: what the driver must support. `rules`: from docs/CLIENT_SPEC.md."""

    def register(play):
        play.needs, play.rules = needs, rules.split()
        SCENARIOS.append(play)
        return play

    return register


class Stage:
    def __init__(self, words, environment, slowness=1.0):
        self._words, self._environment, self._slowness = words, environment, slowness
        self._stack = contextlib.ExitStack()
        self.folder = tempfile.mkdtemp(prefix="serverlock-stage-")
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.drivers, self.servers = [], []

    def server(self, *options, **more):
        server = Server(*options, **more)
        self.servers.append(server)
        self._stack.callback(server.end)
        return server

    def sentinels(self):
        return Sentinels(self.server)

    def cluster(self, **more):
        return Cluster(lambda *options, **own: self.server(*options, **own, **more))

    def relay(self, server, **more):
        relay = Relay(server.port, **more)
        self._stack.callback(relay.end)
        return relay

    def connect(self, server, *auth):
        conn = Connection(server.port, *auth)
        self._stack.callback(conn.close)
        return conn

    def driver(self, **environment):
        log = os.path.join(self.folder, f"driver-{len(self.drivers)}.log")
        driver = Driver(self._words, {**os.environ, **self._environment, **environment}, log)
        self.drivers.append(driver)
        self._stack.callback(driver.kill)
        return driver

    def clock(self, name="clock"):
        return Clock(os.path.join(self.folder, name))

    def opened(self, place, manager="m", clock=None, **options):
        """A driver with a manager for that server, relay, group or cluster."""
        driver = self.driver(**(clock.environment if clock else {}))
        driver.do("open", manager=manager, at=place.at if hasattr(place, "at") else place, **options)
        return driver

    def lease(self, ms):
        """A lease for a driver that has to renew it in time: longer on a slow machine."""
        return round(ms * self._slowness)

    def need(self, driver, *abilities):
        for ability in abilities:
            if ability not in driver.ready["can"]:
                raise Skip(f"no {ability}")

    def clients_of(self, conn):
        """Other clients' connections to this server."""
        lines = conn.call("CLIENT", "LIST").splitlines()
        me = conn.call("CLIENT", "ID")
        clients = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines]
        return [client for client in clients if int(client["id"]) != me]

    def kill(self):
        """Ends what the scenario talks to, so that it gets an error. The logs stay."""
        for each in [*self.drivers, *self.servers]:
            each.kill()

    def end(self):
        self._stack.close()


def is_free(conn, key):
    return conn.info(key)["state"] == "free"


def waits(conn, key, count=1):
    """Waits until this many attempts are queued."""
    until(f"{count} wait for {key}", lambda: conn.info(key)["waiters"] >= count)


def calls(conn, command):
    """How many times the server ran this command."""
    found = re.search(rf"^cmdstat_{re.escape(command)}:calls=(\d+)", conn.call("INFO", "commandstats"), re.MULTILINE)
    return int(found[1]) if found else 0


def renewed(conn, times):
    """Waits until this many EXTENDs have been sent."""
    until(f"{times} renewals", lambda: calls(conn, "lock.extend") >= times)


class Successor:
    """Waits for a key over its own connection, and records how and when it was granted."""

    def __init__(self, stage, server, key):
        self._conn = stage.connect(server)
        self._conn.timeout(PATIENCE)
        self._conn.send("LOCK.ACQUIRE", key, "PX", 60_000, "WAIT", 200_000, "DETAILS")
        self._granted = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        try:
            details = self._conn.read()
            self._granted.put((details[1] is not None, time.monotonic()))
        except Exception as error:
            self._granted.put(error)

    def works_after(self, *moments):
        """Asserts that it got the lock only after these moments. A lock that its holder released is free at once: the
        work had ended, so the order in which the two events are read here means nothing. A lock that it took over had
        expired, a margin after the holder had to be aware of the loss."""
        granted = self._granted.get(timeout=PATIENCE)
        assert not isinstance(granted, Exception), f"it was not granted: {granted!r}"
        took_over, at = granted
        assert not took_over or max(moments) < at, "the successor is already working"


__all__ = [
    "LATE_SUCCESSORS", "LONG_LEASE", "LONG_WAIT", "PATIENCE", "SCENARIOS", "Skip", "Stage", "Successor", "calls", "is_free", "renewed",
    "scenario", "until", "waits",
]
