"""The Celery application of test_celery.py. Its tasks report to the list `events`, and wait for the list `go`."""

import os

import redis
from celery import Celery, Task
from frame import LEASE, UNLOCKED
from serverlock import Locks
from serverlock.celery import beat, once, unique

PORT = os.environ["SERVERLOCK_TESTS_PORT"]
NAME = os.environ.get("SERVERLOCK_TESTS_NAME", "")
IS_LOCKED = UNLOCKED not in os.environ

client = redis.Redis(port=int(PORT), decode_responses=True, socket_timeout=None)
locks = Locks(redis.Redis(port=int(PORT)))
app = Celery("tests", broker=f"redis://127.0.0.1:{PORT}/1", backend=f"redis://127.0.0.1:{PORT}/2")
app.conf.update(
    broker_connection_retry_on_startup=True,
    worker_prefetch_multiplier=1,
    beat_schedule={"tick": {"task": "tick", "schedule": 1.0, "args": (NAME,), "options": {"queue": "ticks"}}},
)
if IS_LOCKED:
    app.conf.beat_scheduler = beat(locks, lease=LEASE)


def base(made):
    return made if IS_LOCKED else Task


def work(name, argument):
    """Reports that it runs, and runs until there is something in the list `go`."""
    client.rpush("events", f"{NAME} begins {name} {argument}")
    client.blpop("go", 0)
    client.rpush("events", f"{NAME} ends {name} {argument}")


@app.task(base=base(unique(locks, "until_executed", lease=LEASE)))
def executed(argument):
    work("executed", argument)


@app.task(base=base(unique(locks, "while_executing", lease=LEASE, again_in=0.5)))
def executing(argument):
    work("executing", argument)


@app.task(base=base(unique(locks, "while_executing", lease=LEASE, conflict="drop")))
def dropping(argument):
    work("dropping", argument)


@app.task(bind=True, base=base(unique(locks, "until_executed", lease=LEASE)))
def retried(self, argument):
    client.rpush("events", f"{NAME} tries {self.request.retries}")
    if self.request.retries < 2:
        raise self.retry(countdown=0)


@app.task(base=base(once(locks, 24 * 3600, lease=LEASE)))
def daily(argument):
    work("daily", argument)
