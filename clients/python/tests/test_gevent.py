"""Greenlets ended by a time-out or `kill` at any moment: nothing is left, and the manager keeps working."""

import subprocess
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "suite"))

from servers import Server  # noqa: E402

STORM = """
import gevent.monkey
gevent.monkey.patch_all()
import random, time
import gevent, redis
from serverlock import Locks, LockRefused

locks = Locks(redis.Redis(port=PORT))
dice = random.Random(3)
counts = {"granted": 0, "cancelled": 0, "refused": 0}
held = locks.lock("bystander", 30).acquire()

class Gone(Exception):
    pass

def caller(wait):
    for _ in range(30):
        try:
            with gevent.Timeout(dice.uniform(0.0, 0.02), Gone):
                with locks.lock(f"k{dice.randrange(5 if wait else 1000)}", 30, wait=wait):
                    pass
            counts["granted"] += 1
        except Gone:
            counts["cancelled"] += 1
        except LockRefused:
            counts["refused"] += 1

for wait in (0, 60):
    greenlets = [gevent.spawn(caller, wait) for _ in range(60)]
    doomed = greenlets[:10]
    gevent.sleep(0.1)
    gevent.killall(doomed)
    gevent.joinall(greenlets)
    assert all(greenlet.successful() for greenlet in greenlets), [greenlet.exception for greenlet in greenlets]

engine = locks._engine()
used = engine.resources
end = time.monotonic() + 60
def left():
    waiting = len(used.subscription._by_id)
    return engine.wire.in_use, used.connections.in_use, waiting, len(engine.scopes), used.debts.count
while any(left()) and time.monotonic() < end:
    gevent.sleep(0.05)
assert not any(left()), left()
for number in range(5):
    locks.lock(f"k{number}", 30, wait=20).acquire().release()
assert held.release()
assert counts["cancelled"] > 100, counts
print(counts)
"""


class Greenlets(unittest.TestCase):
    def test_a_storm_leaves_nothing(self) -> None:
        server = Server()
        self.addCleanup(server.end)
        done = subprocess.run(
            [sys.executable, "-c", STORM.replace("PORT", str(server.port))],
            capture_output=True,
            text=True,
            timeout=600,
            env={"PYTHONPATH": str(HERE.parent / "src")},
        )
        self.assertEqual(done.returncode, 0, f"{done.stdout}\n{done.stderr}")
        conn = server.connect()
        self.addCleanup(conn.close)
        for number in range(5):
            self.assertEqual(conn.info(f"k{number}")["state"], "free")


if __name__ == "__main__":
    unittest.main()
