import secrets

# In one step: whether the caller still holds the lock, and its result.
KEEP = """
if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('SET', KEYS[2], ARGV[2], 'EX', ARGV[3])
return 1
"""


class Busy(Exception):
    """Another call with this key is at it, or was when this one was too slow: ask again."""


def once(client, key, lease_s, keep_s, work):
    """The result of work() for this idempotency key, from now or from the call that was first."""
    lock, kept = f"{{{key}}}:lock", f"{{{key}}}:result"  # one slot of a cluster
    if (result := client.get(kept)) is not None:
        return result
    attempt = str(secrets.randbelow(10**18))
    token = client.execute_command("LOCK.ACQUIRE", lock, "EX", lease_s, "WAIT", 4000, "ID", attempt)
    if token is None:
        raise Busy(key)
    try:
        if (result := client.get(kept)) is not None:  # it came while this call waited
            return result
        result = work(token)
        if not client.eval(KEEP, 2, lock, kept, token, result, keep_s):
            raise Busy(key)
        return result
    finally:
        client.execute_command("LOCK.RELEASE", lock, token)
