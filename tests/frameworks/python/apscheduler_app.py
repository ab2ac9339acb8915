"""A scheduler of test_apscheduler.py, in one process of several. Its arguments: the kind of scheduler, and the job."""

import asyncio
import os
import sys

import redis
import redis.asyncio
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.blocking import BlockingScheduler
from frame import LEASE, UNLOCKED
from serverlock import Locks, aio
from serverlock.apscheduler import once_per_tick

PORT = int(os.environ["SERVERLOCK_TESTS_PORT"])
NAME = os.environ["SERVERLOCK_TESTS_NAME"]
IS_LOCKED = UNLOCKED not in os.environ
PERIOD = 10
DAY = 86_400

client = redis.Redis(port=PORT, socket_timeout=None)


def job_of(locks, period, job):
    return once_per_tick(locks, "job", period, lease=min(LEASE, period / 4))(job) if IS_LOCKED else job


def tick(number=0, held=None):
    seconds, micros = client.time()
    tick = held.tick if held else int((seconds + micros / 1e6) / PERIOD + 0.5)
    client.rpush("events", f"{NAME} {number} ran {tick}")


def work(held=None):
    client.rpush("events", f"{NAME} begins")
    client.blpop("go", 0)
    client.rpush("events", f"{NAME} ends")


async def async_tick(number=0, held=None):
    tick(number, held)


async def async_work(held=None):
    await asyncio.to_thread(work, held)


def add_to(scheduler, locks, tick, work):
    if sys.argv[2] == "tick":
        scheduler.add_job(job_of(locks, PERIOD, tick), "cron", second=f"*/{PERIOD}", args=(7,))
    else:
        scheduler.add_job(job_of(locks, DAY, work), "interval", seconds=1)


async def run_async():
    async with aio.Locks(redis.asyncio.Redis(port=PORT)) as locks:
        scheduler = AsyncIOScheduler()
        add_to(scheduler, locks, async_tick, async_work)
        scheduler.start()
        client.rpush("events", f"{NAME} starts")
        await asyncio.Event().wait()


if sys.argv[1] == "async":
    asyncio.run(run_async())
else:
    scheduler = BlockingScheduler()
    add_to(scheduler, Locks(redis.Redis(port=PORT)), tick, work)
    client.rpush("events", f"{NAME} starts")
    scheduler.start()
