"""Plays what tests/integration/languages asks for, with the asyncio lock of examples/python.

A line of JSON in, a line of JSON out; see tests/integration/languages/driver.rs.
"""

import asyncio
import json
import os
import sys
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../examples/python"))

import redis
import redis.asyncio
from redis_lock import LockLost, LockRefused, LockReply, LockUnsupported
from redis_lock.aio import Lock

KINDS = [(LockRefused, "refused"), (LockLost, "lost"), (LockUnsupported, "unsupported"), (LockReply, "reply"),
         (redis.RedisError, "connection"), (KeyError, "work"), (asyncio.CancelledError, "refused")]
locks = {}


def say(**line):
    print(json.dumps(line), flush=True)


def say_error(error):
    kind = next((kind for known, kind in KINDS if isinstance(error, known)), "unknown")
    say(event="error", kind=kind, name=type(error).__name__, text=str(error) or "cancelled")


def lock_of(client, command):
    return Lock(client, command["key"], command["lease_ms"] / 1000, wait=command["wait_ms"] / 1000,
                timeout=command["timeout_ms"] / 1000, owner=command["owner"], session=command["session"],
                fallback=command["fallback"], prefix=command["prefix"])


async def hold(client, command, commands):
    lock = locks.get(str(command)) or lock_of(client, command)
    locks[str(command)] = lock  # asked for the same again, it uses the same again
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        async with lock:
            say(event="held", token=lock.token, warned=" ".join(str(warning.message) for warning in warned))
            try:
                order = (await commands.get())["do"]
            except asyncio.CancelledError:
                say(event="stopped", left_ms=lock.left() * 1000)
                raise
            if order == "fail":
                raise KeyError("the work failed")
    say(event="left")


async def obey(client, command, commands):
    try:
        if command["do"] == "hold":
            await hold(client, command, commands)
        else:
            say(event="pong", reply=(await client.echo("hello")).decode())
    except (Exception, asyncio.CancelledError) as error:
        say_error(error)


async def main():
    clients, commands, task = {}, asyncio.Queue(), None
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        command = json.loads(line)
        if command["do"] == "cancel":
            task.cancel()
        elif task and not task.done():
            await commands.put(command)
        else:
            where = command["port"], command["protocol"]
            if where not in clients:
                clients[where] = redis.asyncio.Redis(port=where[0], protocol=where[1], socket_timeout=5)
            task = asyncio.create_task(obey(clients[where], command, commands))
    os._exit(0)


asyncio.run(main())
