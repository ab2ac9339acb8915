"""The faults of Jepsen's lock workloads, drawn at random from a seed."""

import random
import signal
import time

NEMESES = ("none", "kill", "stop", "cut", "clock", "pause", "all")

# How long a fault lasts, and how long the group then has to recover, in seconds.
LASTS, RESTS = (3.0, 8.0), (7.0, 11.0)
# A client is stopped for longer than a lease and the margin.
PAUSES = (5.0, 9.0)


class Nemesis:
    """Breaks things until a moment, and repairs each before the next."""

    def __init__(self, name, seed, group, network, clients, places, note):
        self.name, self.group, self.network = name, group, network
        self.clients, self.places, self.note = clients, places, note
        self.dice = random.Random(f"{seed}/{name}")

    def run(self, end):
        self._sleep(self.dice.uniform(3, 5), end)
        while self.name != "none" and time.monotonic() < end - 3:
            known = [fault for fault in NEMESES[1:-1] if fault != "clock" or self.group.has_clocks]
            chosen = [self.name]
            if self.name == "all":
                chosen = self.dice.sample(known, self.dice.choice((1, 1, 2)))
            repairs = [getattr(self, fault)() for fault in chosen]
            lasts = self.dice.uniform(*(PAUSES if "pause" in chosen else LASTS))
            self._sleep(lasts, end)
            for repair in repairs:
                repair()
            self.note("repaired", " and ".join(chosen))
            self._sleep(self.dice.uniform(*RESTS), end)
        self._sleep(end - time.monotonic(), end)

    @staticmethod
    def _sleep(seconds, end):
        time.sleep(max(0.0, min(seconds, end - time.monotonic())))

    def _victim(self):
        """The master or leader in two cases of three."""
        # Both are drawn always, so that a seed's faults are the same for each system.
        is_leader, any_node = self.dice.random() < 2 / 3, self.dice.choice(self.group.data())
        leader = self.group.leader()
        return leader if is_leader and leader is not None else any_node

    def _is_leader(self, node):
        return "the leader" if node is self.group.leader() else "another node"

    def kill(self):
        node = self._victim()
        self.note("kill -9", f"{node.number}, {self._is_leader(node)}")
        node.kill()
        return node.start

    def stop(self):
        node = self._victim()
        self.note("SIGSTOP", f"{node.number}, {self._is_leader(node)}")
        node.stop()
        return node.resume

    def cut(self):
        node = self._victim()
        # From no client, from all, or from all but one: that client sees only this node.
        kind, near = (
            self.dice.choice(("no client", "all clients", "all clients but one")),
            self.dice.choice(self.places),
        )
        far = {"no client": [], "all clients": self.places}.get(kind, [place for place in self.places if place != near])
        self.note("cut off", f"{node.number}, {self._is_leader(node)}, from the other nodes and {kind}")
        for other in self.group.data():
            if other is not node:
                self.network.cut(node.number, other.number)
        for place in far:
            self.network.cut(node.number, place)
        if kind == "all clients but one":
            for other in self.group.data():
                if other is not node:
                    self.network.cut(near, other.number)
        return self.network.heal

    def clock(self):
        node = self._victim()
        seconds = self.dice.choice((-1, 1)) * self.dice.uniform(2, 10)
        self.note("clock", f"{node.number}, {self._is_leader(node)}, {seconds:+.1f} s")
        self.group.move_clock(node, seconds)
        return lambda: self.group.move_clock(node, 0)

    def pause(self):
        client = self.dice.choice(self.clients)
        self.note("pause", f"client {self.clients.index(client)}")
        client.process.send_signal(signal.SIGSTOP)
        return lambda: client.process.send_signal(signal.SIGCONT)
