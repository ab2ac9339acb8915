from serverlock import LockLost, LockTimeout


def submit(client, customer, job):
    client.rpush(f"{{customer:{customer}}}:jobs", job)
    # Then tell a worker, in whatever way: it calls work_off.


def work_off(client, locks, customer, most_s, handle):
    """Does the jobs of a customer in their order, one at a time over all workers. False: ask again."""
    lock, jobs = f"{{customer:{customer}}}:lock", f"{{customer:{customer}}}:jobs"
    try:
        # Waits for the worker that is at it, even if that will do this job too: it may have seen an empty list already.
        with locks.lock(lock, min(5, most_s), wait=10, max_hold=most_s) as held:
            while (job := client.lindex(jobs, 0)) is not None:
                held.check()
                handle(job, held.token)
                held.fenced("LPOP", jobs)  # off the list, if its worker still holds the lock
            return True
    except (LockTimeout, LockLost):
        return False
