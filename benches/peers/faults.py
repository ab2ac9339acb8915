"""The parts of the comparison in which a client or the server fails.

Each function measures one contender once, on a server and with workers of its own. It returns the server's version and
settings, and the measurements.
"""

import contextlib
import os
import queue
import signal
import socketserver
import threading
import time

# The lease, or the session's time-out, of every contender that has one.
LEASE_MS = 10_000
# For the counter: shorter than the pauses.
SHORT_LEASE_MS = 4_000
PAUSE = 10.0


@contextlib.contextmanager
def started(contender, worker, count, lease_ms):
    server = contender.server()
    workers = []
    try:
        workers += [worker(contender, server.port, lease_ms) for _ in range(count)]
        for each in workers:
            each.hear()
        yield server, workers
    finally:
        for each in workers:
            each.end()
        server.end()


def described(server):
    return f"{server.version()}; {server.settings}"


def killed(contender, worker):
    """From SIGKILL of the holder's process until the waiting process has the lock."""
    with started(contender, worker, 2, LEASE_MS) as (server, (holder, waiter)):
        version = described(server)
        holder.ask("hold", "killed")
        waiter.say("hold", "killed")
        time.sleep(2)  # let it wait; not longer than a renewal of any lease
        began = time.monotonic()
        os.kill(holder.pid, signal.SIGKILL)
        waiter.hear()
        return version, {"seconds": time.monotonic() - began}


def restarted(contender, worker):
    """The longest time without a grant: from SIGKILL of the server, which is started again at once."""
    with started(contender, worker, 1, LEASE_MS) as (server, (clients,)):
        version = described(server)
        clients.ask("hot", "restarted", 4, 2)  # warms it
        clients.say("outage", "restarted", 4, 20)
        time.sleep(2)
        began = time.monotonic()
        server.restart()
        started_again = time.monotonic() - began
        said = clients.hear()
        return version, {"seconds": said["gap_ms"] / 1000, "server_seconds": started_again}


class Counter(socketserver.ThreadingTCPServer):
    """What the lock guards: `get PID`, `put VALUE TOKEN`. It refuses a token below the largest that it has seen."""

    allow_reuse_address, daemon_threads = True, True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), CounterClient)
        self.mutex, self.value, self.token, self.refused, self.outdated = threading.Lock(), 0, 0, 0, 0
        self.is_pause_due, self.paused = False, queue.Queue()

    def answer(self, order, value="0", token="0"):
        with self.mutex:
            if order == "get":
                if self.is_pause_due:
                    self.is_pause_due = False
                    os.kill(int(value), signal.SIGSTOP)
                    self.paused.put(int(value))
                return str(self.value)
            if 0 < int(token) < self.token:
                self.refused += 1
                return "stale"
            self.outdated += int(value) != self.value + 1
            self.value, self.token = int(value), max(self.token, int(token))
            return "ok"

    def pause_holder(self):
        """Stops the next process that reads the counter, before it writes, and returns its ID."""
        self.is_pause_due = True
        return self.paused.get(timeout=120)


class CounterClient(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self):
        for line in self.rfile:
            self.wfile.write(self.server.answer(*line.decode().split()).encode() + b"\n")


def lost(contender, worker, fenced="unfenced"):
    """Writes on top of a value that had already changed, and the increments that are missing in the end."""
    with started(contender, worker, 2, SHORT_LEASE_MS) as (server, workers), Counter() as counter:
        version = described(server)
        threading.Thread(target=counter.serve_forever, daemon=True).start()
        for each in workers:  # warms it
            each.ask("hot", "warm", 4, 2)
        for each in workers:
            each.say("count", "counter", 4, 50, counter.server_address[1], fenced)
        for _ in range(2):
            time.sleep(2)
            paused = counter.pause_holder()
            time.sleep(PAUSE)
            os.kill(paused, signal.SIGCONT)
        time.sleep(2)
        server.pause()
        time.sleep(PAUSE)
        server.resume()
        for _ in range(3):
            time.sleep(2)
            server.restart()
        answers = [each.hear() for each in workers]
        counter.shutdown()
        accepted = sum(count for answer in answers for count in answer["counts"])
        return version, {
            "accepted": accepted,
            "lost": accepted - counter.value,
            "outdated": counter.outdated,
            "refused": counter.refused,
            "errors": sum(answer["errors"] for answer in answers),
        }


def fenced(contender, worker):
    return lost(contender, worker, "fenced")
