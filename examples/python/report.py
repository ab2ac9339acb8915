import time, redis
from serverlock import Locks

locks = Locks(redis.Redis())  # one for each Redis client in the application
with locks.lock("report", lease=10, wait=60) as held:  # raises LockTimeout if somebody else still has it
    print("working, token", held.token, flush=True)
    for step in range(10):
        held.check()  # before each step: raises LockLost if the lock is no longer held
        time.sleep(1)
