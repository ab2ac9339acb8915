"""Celery tasks that run once, and a beat that runs on one of several hosts. Needs celery.

locks = Locks(redis.Redis())
app.conf.beat_scheduler = beat(locks)

@app.task(base=unique(locks, "until_executed"))
def import_orders(shop): ...

@app.task(base=once(locks, period=3600))
def hourly(): ...
"""

from .beat import beat
from .tasks import once, unique

__all__ = ["beat", "once", "unique"]
