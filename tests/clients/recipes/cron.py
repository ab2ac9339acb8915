import socket


class LeaseLost(Exception):
    """The job took longer than its lease: another machine may have run it meanwhile."""


def once_per_period(client, name, period_s, lease_s, job):
    """Runs the job if no machine has run it in this period, and none is at it. True if it ran here."""
    seconds, _ = client.time()  # the server's clock: those of the machines may differ
    period = int(seconds + period_s / 2) // period_s  # the nearest beginning: a cron may fire a little early
    key = f"cron:{name}:{period}"
    grant = client.execute_command(
        "LOCK.ACQUIRE", key, "EX", lease_s, "OWNER", socket.gethostname(), "DETAILS"
    )
    if grant is None:
        return False
    token, overdue_ms, _, _ = grant
    try:
        job(token, overdue_ms is not None)  # True: a machine died at it, or was too slow
    except BaseException:
        client.execute_command("LOCK.RELEASE", key, token)  # another may try again in this period
        raise
    # Not released: for the rest of the period, and one more, nobody runs it again.
    if client.execute_command("LOCK.EXTEND", key, token, "EX", 2 * period_s) == 0:
        raise LeaseLost(key)
    return True
