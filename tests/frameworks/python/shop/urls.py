"""One view, which holds a lock while it waits for the list `go`."""

import contextlib
import os

from django.http import HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from frame import UNLOCKED
from serverlock import LockRefused
from serverlock.django import lock, locks


@csrf_exempt
def pay(request, order):
    try:
        with contextlib.nullcontext() if UNLOCKED in os.environ else lock(f"order:{order}", lease=30):
            client = locks()._client
            client.rpush("events", f"begins {order}")
            client.blpop("go", 0)
            return HttpResponse("paid")
    except LockRefused:
        return HttpResponse("somebody else is paying", status=409)


urlpatterns = [path("orders/<int:order>/pay", pay)]
