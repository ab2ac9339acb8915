def cached(client, locks, key, most_s, keep_s, compute):
    """Returns the cached bytes of this key. If there are none, one process computes them for all that ask."""
    lock, kept = f"{{{key}}}:lock", f"{{{key}}}:cached"  # one slot of a cluster
    if (value := client.get(kept)) is not None:
        return value

    def fill(held):
        if (value := client.get(kept)) is not None:  # it arrived before this call had the lock
            return value
        value = compute()
        held.fenced("SET", kept, value, "EX", keep_s)  # in one step with the check that the lock is held
        return value

    return locks.single_flight(lock, min(5, most_s), fill, wait=2 * most_s, max_hold=most_s)
