import asyncio, redis.asyncio
from serverlock.aio import Locks

async def main():
    async with redis.asyncio.Redis() as client, Locks(client) as locks:
        async with locks.lock("report", lease=10, wait=60) as held:  # cancelled here if the lock is lost
            print("working, token", held.token, flush=True)
            await asyncio.sleep(10)

asyncio.run(main())
