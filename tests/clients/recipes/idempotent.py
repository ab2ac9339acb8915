from serverlock import LockLost, LockTimeout


class Busy(Exception):
    """Another call with this key is running, or ran when this one was too slow: try again."""


def once(client, locks, key, most_s, keep_s, work):
    """Returns the result of work() for this idempotency key, from this call or an earlier one."""
    lock, kept = f"{{{key}}}:lock", f"{{{key}}}:result"  # one slot of a cluster
    if (result := client.get(kept)) is not None:
        return result
    try:
        with locks.lock(lock, min(5, most_s), wait=10, max_hold=most_s) as held:
            if (result := client.get(kept)) is not None:  # it arrived while this call was waiting
                return result
            result = work(held.token)
            held.fenced("SET", kept, result, "EX", keep_s)  # in one step with the check that the lock is held
            return result
    except (LockTimeout, LockLost) as error:
        raise Busy(key) from error
