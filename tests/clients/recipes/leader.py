import threading


def lead(locks, key, name, lease_s, work, stop):
    """Campaigns until stop(). While this node leads, work(term) is called again and again, a small piece each time."""
    leads = threading.Event()
    with locks.leader(
        key, lease_s, owner=name, session=True, on_elected=lambda _: leads.set(), on_lost=lambda _: leads.clear()
    ) as leader:
        while not stop():
            # No token: another node leads, or may lead.
            if leads.wait(0.1) and (term := leader.token) is not None:
                work(term)
    # It has stepped down: the next one leads at once.
