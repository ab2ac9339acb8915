"""A lock of redis-lock for redis-py with asyncio. Needs Python 3.11.

    async with Lock(redis.asyncio.Redis(), "report", lease=30, wait=60) as lock:
        lock.token  # the fencing token: give it to the storage that is written to

It has a connection of its own. It waits in pieces shorter than its time-out, under one random ID: neither a lost reply
nor a time-out loses the place in line or leaves a lock behind; a cancelled wait leaves the line. A task renews the
lease at a third of it. Where that fails, the lock is lost at nine tenths of the lease, counted from when the last
renewal was sent: the block is cancelled, and ends with LockLost.
"""

import asyncio
import random
import time

import redis

from .attempt import Attempt, LockError, LockRefused, LockUnsupported, is_broken, may_pass, own_connection


class Lock:
    """For one holder after the other. Times are seconds. With `session` the lock ends with its connection. With
    `fallback` a server without the module gets SET NX PX instead: no order among those who wait, no token (None)."""

    def __init__(self, client, key, lease, *, wait=0, timeout=5, owner=None, session=False, fallback=False, prefix=""):
        self._client, self._lease, self._wait, self._session = client, lease, wait, session
        self._timeout = min(timeout, lease / 4)  # a renewal can fail and the next still be in time
        self._attempt = Attempt(prefix + key, lease, owner, session, fallback)
        self._connection = None

    @property
    def token(self):
        """The fencing token; None under the fallback."""
        return self._attempt.token

    async def __aenter__(self):
        """Raises LockRefused when somebody else has the lock."""
        self._attempt.begin()
        self._lost, self._released = None, False
        try:
            sent = await self._acquire()
            if time.monotonic() > sent + self._lease / 3:  # the grant may be as old as the call: begin anew
                sent = time.monotonic()
                if await self._exchange("EXTEND") != 1:
                    raise self._attempt.lost("it was over before it could be used")
        except BaseException as error:
            await self._disconnect()
            if not isinstance(error, LockRefused | LockUnsupported):
                await self._cancel()  # it may stand in line, or have been granted
            raise
        self._until = sent + self._lease
        self._work = asyncio.current_task()
        self._cancels_before = self._work.cancelling()
        self._renewal = asyncio.create_task(self._renew())
        return self

    def left(self):
        """How many seconds of the lease are left, by the clock of this side."""
        return max(0, self._until - time.monotonic())

    async def __aexit__(self, kind, error, trace):
        self._released = True  # the cancellation may be lost on its way, as in wait_for of Python 3.11
        self._renewal.cancel()
        was_stopped = self._lost and self._work.uncancel() <= self._cancels_before
        try:
            await asyncio.wait([self._renewal])
        except asyncio.CancelledError:
            if not was_stopped:  # else it was on its way to a block that had just ended
                raise
        try:
            await self._release()
        except (LockError, redis.RedisError) as failure:
            if error is None or was_stopped and kind is asyncio.CancelledError:
                raise failure from failure.__cause__
            # else the error of the work is the one to tell
        finally:
            await self._disconnect()

    async def _acquire(self):
        """When the command was sent that got the lock."""
        end, tried = time.monotonic() + self._wait, False
        while True:
            sent = time.monotonic()
            piece = min(max(end - sent, 0), self._timeout * 0.6)
            try:
                if await self._exchange("ACQUIRE", piece) is not None:
                    return sent
            except redis.RedisError as error:
                if not may_pass(error) or tried and time.monotonic() >= end:
                    raise
                tried, pause = True, 0.05
                await self._disconnect()
            else:
                # No piece ends early but by LOCK.CANCEL or CLIENT UNBLOCK.
                early = not self._attempt.is_plain and time.monotonic() < sent + piece - 0.05
                if early or time.monotonic() >= end:
                    raise self._attempt.refused()
                pause = random.uniform(0.05, 0.15) if self._attempt.is_plain else 0
            await asyncio.sleep(pause)

    async def _cancel(self):
        connection = own_connection(self._client, self._timeout)
        try:
            await connection.connect()
            await connection.send_command(*self._attempt.command("CANCEL"))
            await connection.read_response()
        except redis.RedisError:
            pass  # the wait ended with its connection, the lock ends with its lease
        finally:
            await connection.disconnect(nowait=True)

    async def _release(self):
        end, resent = time.monotonic() + self._timeout, False
        while True:
            try:
                reply = await self._exchange("RELEASE")
                break
            except redis.RedisError as error:
                if self._lost or not may_pass(error) or resent and time.monotonic() > end:
                    raise self._lost or error
                await self._disconnect()
                resent = not await asyncio.sleep(0.05)
        # Sent again, it finds the lock released already: 0.
        if self._lost or reply != 1 and not (reply == 0 and resent and self.left()):
            raise self._lost or self._attempt.lost("it was over before it was released")

    async def _renew(self):
        pause, cause = self._lease / 3, None
        while not self._released:
            await asyncio.sleep(pause)
            sent, give_up = time.monotonic(), self._until - self._lease / 10
            if sent >= give_up:
                return self._lose("its lease was not renewed", cause)
            try:
                async with asyncio.timeout(give_up - sent):
                    if await self._exchange("EXTEND") != 1:
                        return self._lose("it was taken away", None)
                self._until, pause, cause = sent + self._lease, self._lease / 3, None
            except (redis.RedisError, LockError, TimeoutError) as error:
                if is_broken(error) or isinstance(error, LockError | TimeoutError):
                    if self._session:
                        return self._lose("its session has ended", error)
                    await self._disconnect()
                pause, cause = min(self._lease / 20, max(give_up - time.monotonic(), 0)), error

    def _lose(self, why, cause):
        self._lost = self._attempt.lost(why, cause)
        if not self._released:
            self._work.cancel()

    async def _exchange(self, name, piece=0):
        if self._connection is None:
            self._connection = own_connection(self._client, self._timeout)
            await self._connection.connect()
        try:
            await self._connection.send_command(*self._attempt.command(name, piece))
            return self._attempt.read(name, await self._connection.read_response())
        except redis.ResponseError as error:
            self._attempt.fall_back(name, error)
            return await self._exchange(name, piece)
        except BaseException:
            await self._disconnect()  # a reply to this command must not be read as that to the next
            raise

    async def _disconnect(self):
        if self._connection is not None:
            await self._connection.disconnect(nowait=True)
            self._connection = None
