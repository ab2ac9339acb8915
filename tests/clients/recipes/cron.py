import socket

from serverlock import LockRefused


def once_per_period(client, locks, name, period_s, most_s, job):
    """Runs the job unless another machine runs it, or has run it, in this period. True if it ran here.

    LockLost: the job took longer than most_s, and another machine may have run it in the meantime.
    """
    seconds, _ = client.time()  # the server's clock: the clocks of the machines may differ
    period = int(seconds + period_s / 2) // period_s  # the nearest start: cron may fire a little early
    lock = locks.lock(
        f"cron:{name}:{period}", min(5, most_s), max_hold=most_s, owner=socket.gethostname(), details=True
    )
    try:
        held = lock.acquire()
    except LockRefused:
        return False
    try:
        job(held.token, held.predecessor is not None)  # True: a machine died during the job, or was too slow
    except BaseException:
        held.release()  # another may try again in this period
        raise
    # Neither released nor renewed: no machine runs it again in this period or the next.
    held.extend(2 * period_s)
    return True
