"""Waits for a lock with redis-py and its default time-outs and retries.

redis_py.py PORT KEY OWNER [ID]
"""

import sys

import redis

port, key, owner, *attempt = sys.argv[1:]
client = redis.Redis(port=int(port))
command = ["LOCK.ACQUIRE", key, "EX", 60, "WAIT", 20000, "OWNER", owner]
if attempt:
    command += ["ID", attempt[0]]
try:
    token = client.execute_command(*command)
    print("token", token)
    if token is not None:
        print("released", client.execute_command("LOCK.RELEASE", key, token))
except redis.RedisError as error:
    print("error", type(error).__name__, error)
