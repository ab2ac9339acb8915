import secrets

# Takes the job off the list if its worker still holds the lock.
DONE = """
if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('LPOP', KEYS[2])
return 1
"""


def submit(client, customer, job):
    client.rpush(f"{{customer:{customer}}}:jobs", job)
    # Then tell a worker, in whatever way: it calls work_off.


def work_off(client, customer, lease_s, handle):
    """Does the jobs of a customer in their order, one at a time over all workers. False: ask again."""
    lock, jobs = f"{{customer:{customer}}}:lock", f"{{customer:{customer}}}:jobs"
    attempt = str(secrets.randbelow(10**18))
    # Waits for the worker that is at it, even if that will do this job too: it may have seen an empty list already.
    token = client.execute_command("LOCK.ACQUIRE", lock, "EX", lease_s, "WAIT", 4000, "ID", attempt)
    if token is None:
        return False
    while (job := client.lindex(jobs, 0)) is not None:
        if client.execute_command("LOCK.EXTEND", lock, token, "EX", lease_s) == 0:
            return False
        handle(job, token)
        if not client.eval(DONE, 2, lock, jobs, token):
            return False
    client.execute_command("LOCK.RELEASE", lock, token)
    return True
