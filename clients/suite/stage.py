"""What a scenario has to play with, and how scenarios are known. All that it starts ends with it."""

import contextlib
import os
import shutil
import tempfile

from driver import Driver
from relay import Relay
from resp import Connection
from servers import Cluster, Sentinels, Server, until

SCENARIOS = []


class Skip(Exception):
    """This language, library or server has no way to play it."""


def scenario(*needs, rules=""):
    """Registers a function as a scenario. `needs`: what the driver must be able to. `rules`: of docs/CLIENT_SPEC.md."""

    def register(play):
        play.needs, play.rules = needs, rules.split()
        SCENARIOS.append(play)
        return play

    return register


class Stage:
    def __init__(self, words, environment):
        self._words, self._environment = words, environment
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

    def cluster(self):
        return Cluster(self.server)

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

    def opened(self, place, manager="m", **options):
        """A driver with a manager for that server, relay, group or cluster."""
        driver = self.driver()
        driver.do("open", manager=manager, at=place.at if hasattr(place, "at") else place, **options)
        return driver

    def need(self, driver, *abilities):
        for ability in abilities:
            if ability not in driver.ready["can"]:
                raise Skip(f"no {ability}")

    def clients_of(self, conn):
        """The connections of others at that server."""
        lines = conn.call("CLIENT", "LIST").splitlines()
        me = conn.call("CLIENT", "ID")
        clients = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines]
        return [client for client in clients if int(client["id"]) != me]

    def end(self):
        self._stack.close()


def is_free(conn, key):
    return conn.info(key)["state"] == "free"


def waits(conn, key, count=1):
    """Awaits that so many stand in line."""
    until(f"{count} wait for {key}", lambda: conn.info(key)["waiters"] >= count)


__all__ = ["SCENARIOS", "Skip", "Stage", "is_free", "scenario", "until", "waits"]
