from serverlock import LockLost, LockTimeout


def submit(client, customer, job):
    client.rpush(f"{{customer:{customer}}}:jobs", job)
    # Then notify a worker by any means: it calls drain.


def drain(client, locks, customer, most_s, handle):
    """Does a customer's jobs in order, one at a time across all workers. False: try again."""
    lock, jobs = f"{{customer:{customer}}}:lock", f"{{customer:{customer}}}:jobs"
    try:
        # Wait for the active worker, even if it will do this job too: it may already have seen an empty list.
        with locks.lock(lock, min(5, most_s), wait=10, max_hold=most_s) as held:
            while (job := client.lindex(jobs, 0)) is not None:
                held.check()
                handle(job, held.token)
                held.fenced("LPOP", jobs)  # remove it, if this worker still holds the lock
            return True
    except (LockTimeout, LockLost):
        return False
