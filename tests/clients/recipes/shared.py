import contextlib
import secrets


class Busy(Exception):
    """Not had within the wait; ask again."""


@contextlib.contextmanager
def holding(client, key, lease_s, *share, wait_ms=4000):
    """Holds a lock: alone; with all others who pass "SHARED"; with "LIMIT", n so that at most n hold it."""
    attempt = str(secrets.randbelow(10**18))
    token = client.execute_command("LOCK.ACQUIRE", key, "EX", lease_s, "WAIT", wait_ms, "ID", attempt, *share)
    if token is None:
        raise Busy(key)
    try:
        yield token
    finally:
        client.execute_command("LOCK.RELEASE", key, token)
