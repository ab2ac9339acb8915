def read(locks, index, lease_s, look):
    """Beside all others who read."""
    with locks.shared(index, lease_s, wait=20):
        return look()


def rebuild(locks, index, lease_s, build):
    """Alone: nobody reads meanwhile."""
    with locks.lock(index, lease_s, wait=20):
        return build()


def ask(locks, service, n, lease_s, call):
    """At most n at a time."""
    with locks.limit(service, n, lease_s, wait=20):
        return call()
