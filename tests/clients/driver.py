"""Plays what tests/integration/languages asks for, with the lock of examples/python."""

import json
import os
import queue
import sys
import threading

from driver_common import lock_of, say, say_error, warned

import redis
from redis_lock import Lock

commands, waiting = queue.Queue(), {}


def read():
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "cancel":
            waiting["lock"].cancel()
        else:
            commands.put(command)
    os._exit(0)


def hold(client, command):
    lock = lock_of(Lock, client, command, on_lost=lambda lost: commands.put({"do": "stop"}))
    waiting["lock"] = lock
    with warned() as warnings, lock:
        say(event="held", token=lock.token, warned=warnings())
        order = commands.get()["do"]
        if order == "stop":
            say(event="stopped", left_ms=lock.left() * 1000)
            lock.check()
        if order == "fail":
            raise KeyError("the work failed")
    say(event="left")


clients = {}
threading.Thread(target=read, daemon=True).start()
while True:
    command = commands.get()
    where = command["port"], command["protocol"]
    client = clients.setdefault(where, redis.Redis(port=where[0], protocol=where[1], socket_timeout=5))
    try:
        if command["do"] == "hold":
            hold(client, command)
        else:
            say(event="pong", reply=client.echo("hello").decode())
    except Exception as error:
        say_error(error)
