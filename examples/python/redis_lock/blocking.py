"""A lock of redis-lock for redis-py with threads.

    with Lock(redis.Redis(), "report", lease=30, wait=60) as lock:
        lock.token    # the fencing token: give it to the storage that is written to
        lock.check()  # before each step that must not be done without the lock

It has a connection of its own. It waits in pieces shorter than its time-out, under one random ID: neither a lost reply
nor a time-out loses the place in line or leaves a lock behind. A thread renews the lease at a third of it. Where that
fails, the lock is lost at nine tenths of the lease, counted from when the last renewal was sent: `on_lost` is called,
check() raises LockLost, and so does the end of the block. Python cannot stop a thread from outside: work that goes on
for longer has to call check().
"""

import random
import threading
import time

import redis

from .attempt import Attempt, LockError, LockRefused, LockUnsupported, is_broken, may_pass, own_connection


class Lock:
    """For one holder after the other. Times are seconds. With `session` the lock ends with its connection. With
    `fallback` a server without the module gets SET NX PX instead: no order among those who wait, no token (None)."""

    def __init__(self, client, key, lease, *, wait=0, timeout=5, owner=None, session=False, fallback=False, prefix="",
                 on_lost=lambda lost: None):
        self._client, self._lease, self._wait, self._session, self._on_lost = client, lease, wait, session, on_lost
        self._timeout = min(timeout, lease / 4)  # a renewal can fail and the next still be in time
        self._attempt = Attempt(prefix + key, lease, owner, session, fallback)
        self._connection, self._lost = None, None
        self._cancelled, self._released = threading.Event(), threading.Event()

    @property
    def token(self):
        """The fencing token; None under the fallback."""
        return self._attempt.token

    def __enter__(self):
        """Raises LockRefused when somebody else has the lock."""
        self._attempt.begin()
        self._cancelled.clear()
        self._released.clear()
        self._lost, granted = None, False
        try:
            sent = self._acquire()
            granted = True
            if self._cancelled.is_set():
                raise self._attempt.refused()
            if time.monotonic() > sent + self._lease / 3:  # the grant may be as old as the call: begin anew
                sent = time.monotonic()
                if self._exchange("EXTEND") != 1:
                    raise self._attempt.lost("it was over before it could be used")
        except BaseException as error:
            self._disconnect()
            if granted or not isinstance(error, LockRefused | LockUnsupported):
                self.cancel()  # it may have been granted
            raise
        self._until = sent + self._lease
        self._renewal = threading.Thread(target=self._renew, daemon=True)
        self._renewal.start()
        return self

    def cancel(self):
        """From another thread: ends the wait; it raises LockRefused."""
        self._cancelled.set()
        connection = own_connection(self._client, self._timeout)
        try:
            connection.send_command(*self._attempt.command("CANCEL"))
            connection.read_response()
        except redis.RedisError:
            pass  # the wait ends with its piece, the lock with its lease
        finally:
            connection.disconnect()

    def left(self):
        """How many seconds of the lease are left, by the clock of this side."""
        return max(0, self._until - time.monotonic())

    def check(self):
        """Raises LockLost unless the lock is held for certain."""
        if self._lost or not self.left():
            raise self._lost or self._attempt.lost("its lease is over")

    def __exit__(self, kind, error, trace):
        self._released.set()
        self._renewal.join()
        try:
            self._release()
        except (LockError, redis.RedisError):
            if error is None:  # else that of the work is the one to tell
                raise
        finally:
            self._disconnect()

    def _acquire(self):
        """When the command was sent that got the lock."""
        end, tried = time.monotonic() + self._wait, False
        while True:
            sent = time.monotonic()
            piece = min(max(end - sent, 0), self._timeout * 0.6)
            try:
                if self._exchange("ACQUIRE", piece) is not None:
                    return sent
            except redis.RedisError as error:
                if not may_pass(error) or tried and time.monotonic() >= end:
                    raise
                tried, pause = True, 0.05
                self._disconnect()
            else:
                # No piece ends early but by LOCK.CANCEL or CLIENT UNBLOCK.
                early = not self._attempt.is_plain and time.monotonic() < sent + piece - 0.05
                if early or time.monotonic() >= end:
                    raise self._attempt.refused()
                pause = random.uniform(0.05, 0.15) if self._attempt.is_plain else 0
            if self._cancelled.wait(pause):
                raise self._attempt.refused()

    def _release(self):
        end, resent = time.monotonic() + self._timeout, False
        while True:
            try:
                reply = self._exchange("RELEASE")
                break
            except redis.RedisError as error:
                if self._lost or not may_pass(error) or resent and time.monotonic() > end:
                    raise self._lost or error
                self._disconnect()
                resent = not time.sleep(0.05)
        # Sent again, it finds the lock released already: 0.
        if self._lost or reply != 1 and not (reply == 0 and resent and self.left()):
            raise self._lost or self._attempt.lost("it was over before it was released")

    def _renew(self):
        pause, cause = self._lease / 3, None
        while not self._released.wait(pause):
            sent, give_up = time.monotonic(), self._until - self._lease / 10
            if sent >= give_up:
                return self._lose("its lease was not renewed", cause)
            try:
                if self._exchange("EXTEND", within=min(give_up - sent, self._timeout)) != 1:
                    return self._lose("it was taken away", None)
                self._until, pause, cause = sent + self._lease, self._lease / 3, None
            except (redis.RedisError, LockError) as error:
                if is_broken(error) or isinstance(error, LockError):
                    if self._session:
                        return self._lose("its session has ended", error)
                    self._disconnect()
                pause, cause = min(self._lease / 20, max(give_up - time.monotonic(), 0)), error

    def _lose(self, why, cause):
        self._lost = self._attempt.lost(why, cause)
        self._on_lost(self._lost)

    def _exchange(self, name, piece=0, within=None):
        end = time.monotonic() + (within or self._timeout)
        if self._connection is None:
            self._connection = own_connection(self._client, (within or self._timeout) / 2)
        try:
            self._connection.send_command(*self._attempt.command(name, piece))
            if not self._connection.can_read(max(end - time.monotonic(), 0)):
                raise redis.TimeoutError(f"no reply to LOCK.{name} in time")
            return self._attempt.read(name, self._connection.read_response())
        except redis.ResponseError as error:
            self._attempt.fall_back(name, error)
            return self._exchange(name, piece, within)
        except BaseException:
            self._disconnect()  # a reply to this command must not be read as that to the next
            raise

    def _disconnect(self):
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None
