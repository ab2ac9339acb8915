"""A command that runs on one host, until there is something in the list `go`. Others end, or wait."""

import math
import os

from django.core.management.base import BaseCommand
from frame import LEASE, UNLOCKED
from serverlock.django import OneHost, locks


class Work(BaseCommand):
    def handle(self, *args, **options):
        client = locks()._client
        client.rpush("events", f"{os.environ['SERVERLOCK_TESTS_NAME']} begins")
        client.blpop("go", 0)
        client.rpush("events", f"{os.environ['SERVERLOCK_TESTS_NAME']} ends")


class Locked(OneHost, Work):
    lock_lease = LEASE
    lock_wait = math.inf if "SERVERLOCK_TESTS_STANDBY" in os.environ else 0


Command = Work if UNLOCKED in os.environ else Locked
