"""A worker that holds both the old library's lock and a LOCK.* lock, while a fleet moves from one to the other.

both.py PORT: prints `working` when it has both, and works until it reads a line.
"""

import secrets
import sys

import redis


def work(token):
    print("working", flush=True)
    sys.stdin.readline()


client = redis.Redis(port=int(sys.argv[1]))

# both locks
attempt = str(secrets.randbelow(10**18))
acquire = ["LOCK.ACQUIRE", "report", "EX", 60, "WAIT", 4000, "ID", attempt]
old = client.lock("report:old", timeout=60)  # your old lock, of whatever kind
if old.acquire(blocking_timeout=20):
    try:
        while (token := client.execute_command(*acquire)) is None:
            old.reacquire()  # the wait must not use up the old lease
        try:
            work(token)
        finally:
            client.execute_command("LOCK.RELEASE", "report", token)
    finally:
        old.release()
# end
