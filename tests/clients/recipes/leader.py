import secrets
import time


def lead(client, key, name, lease_s, work, stop):
    """Waits to become the leader, then calls work(term, deadline) until stop() or until it leads no longer.

    The client needs a connection of its own: redis.Redis(single_connection_client=True).
    """
    attempt = str(secrets.randbelow(10**18))
    term = None
    while term is None:
        if stop():
            client.execute_command("LOCK.CANCEL", key, attempt)
            return
        term = client.execute_command(
            "LOCK.ACQUIRE", key, "EX", lease_s, "WAIT", 1000, "ID", attempt, "OWNER", name, "SESSION"
        )
    while not stop():
        sent = time.monotonic()
        # Also right after the wait: when the grant was is not known here.
        if client.execute_command("LOCK.EXTEND", key, term, "EX", lease_s) == 0:
            return  # somebody else leads
        work(term, sent + lease_s * 2 / 3)  # a piece that ends before the deadline
    client.execute_command("LOCK.RELEASE", key, term)  # steps down: the next one leads at once
