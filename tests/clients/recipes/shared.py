def read(locks, index, lease_s, look):
    """Runs look() together with other readers."""
    with locks.shared(index, lease_s, wait=20):
        return look()


def rebuild(locks, index, lease_s, build):
    """Runs build() alone, without readers."""
    with locks.lock(index, lease_s, wait=20):
        return build()


def ask(locks, service, n, lease_s, call):
    """Runs at most n calls at a time."""
    with locks.limit(service, n, lease_s, wait=20):
        return call()
