import asyncio
import contextlib
import secrets
import time


class Waiting:
    """Any number of waits over one connection for commands and one for messages. Run `listen` as a task."""

    def __init__(self, client, again_s=5):
        self.client = client
        self.channel = f"locks:{secrets.token_hex(8)}"  # for this process alone
        self.again_s = again_s  # shorter than lock.place-ms, 10 s
        self.turns = {}  # the waiting attempts, by ID

    async def listen(self):
        async with self.client.pubsub() as messages:
            await messages.subscribe(self.channel)
            async for message in messages.listen():
                if message["type"] == "subscribe":
                    # Subscribed, perhaps again after a lost connection: messages may have been missed.
                    for turn in self.turns.values():
                        turn.set()
                else:
                    _, attempt, _ = message["data"].split(b" ", 2)
                    if turn := self.turns.get(attempt.decode()):
                        turn.set()

    async def acquire(self, key, lease_s, wait_s):
        """Returns the token and the time when its lease ends; None if the lock is still taken after that wait."""
        attempt, until = str(secrets.randbelow(10**18)), time.monotonic() + wait_s
        turn = self.turns[attempt] = asyncio.Event()  # before the command: a message may overtake its reply
        token = None
        try:
            while (left_s := until - time.monotonic()) > 0:
                turn.clear()
                sent = time.monotonic()
                call = ("LOCK.ACQUIRE", key, "EX", lease_s, "WAIT", int(left_s * 1000) + 1, "ID", attempt)
                reply = await self.client.execute_command(*call, "NOTIFY", self.channel)
                if reply != b"WAITING":
                    token = reply
                    return token and (token, sent + lease_s)
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(turn.wait(), min(left_s, self.again_s))
        finally:
            del self.turns[attempt]
            if token is None:  # it gives up, or does not know the outcome: do not delay others
                await self.client.execute_command("LOCK.CANCEL", key, attempt)
