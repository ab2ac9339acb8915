"""Plays what tests/integration/languages asks for, with the asyncio lock of examples/python."""

import asyncio
import json
import os
import sys

from driver_common import lock_of, say, say_error, warned

import redis.asyncio
from redis_lock.aio import Lock


async def hold(client, command, commands):
    lock = lock_of(Lock, client, command)
    with warned() as warnings:
        async with lock:
            say(event="held", token=lock.token, warned=warnings())
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
