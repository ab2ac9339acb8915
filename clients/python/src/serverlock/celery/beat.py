"""A beat that runs on one of several hosts. Start `celery beat` on each of them: one sends the tasks, and the others
wait in the lock's queue.

When each entry last ran is kept beside the lock, so the next host continues where the last one stopped: a task that
became due in between is sent at once, and none is sent twice. Before each task, the server confirms that the lock is
still held.
"""

import json
from datetime import datetime
from typing import Any, ClassVar

from celery.beat import Scheduler
from celery.utils.log import get_logger

from ..core.request import Duration, request_of
from ..errors import LockBadArgument, LockError, LockLost, LockRefused
from ..threads.held import Held
from ..threads.locks import Lock, Locks

STANDBY = 1.0  # one wait in the queue; also how long `celery beat` takes to notice that it is to stop
PAUSE = 1.0

log = get_logger("serverlock.celery")


def beat(
    locks: Locks, *, key: str = "serverlock:beat", lease: Duration = 5.0, base: type[Any] = Scheduler
) -> type[Any]:
    """A scheduler class: `app.conf.beat_scheduler = beat(locks)`.

    key: the same for all hosts that share a schedule.
    lease: if the host dies, another one continues once the lease and the server's margin (1 s) have passed. After a
    regular stop, it continues at once.
    base: the scheduler that this one extends.
    """
    if not key or "{" in key or "}" in key:
        raise LockBadArgument(key, "key is empty, or has a brace")
    # In a cluster, a fenced command needs both keys in one slot.
    lock = locks.lock(f"{{{key}}}:leader", lease, wait=STANDBY)
    request_of([key], lease)
    return type("OneBeat", (OneBeat, base), {"serverlock_lock": lock, "serverlock_runs": f"{{{key}}}:runs"})


class OneBeat(Scheduler):
    """Sends due tasks while it holds the lock."""

    serverlock_lock: ClassVar[Lock]
    serverlock_runs: ClassVar[str]

    _held: Held | None = None
    _must_pause = False
    _is_closed = False

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Returns how long to sleep. On standby it waits here: the wait ends as soon as the lock is free."""
        self._end_if_closed()
        if not self._leads():
            return PAUSE if self._must_pause else 0.0
        self._must_pause = False
        delay: float = super().tick(*args, **kwargs)
        self._end_if_closed()
        return max(delay, PAUSE) if self._must_pause else delay

    def _end_if_closed(self) -> None:
        """Celery's signal handler closes the beat and then raises SystemExit, which Python drops within a __del__."""
        if self._is_closed:
            raise SystemExit

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Sends the task if the lock is held: the run is recorded first, in one step with that check."""
        held, ran = self._held, self.schedule[entry.name]
        state = json.dumps({"last_run_at": ran.last_run_at.isoformat(), "total_run_count": ran.total_run_count})
        try:
            if held is None:
                raise LockLost(self.serverlock_runs, "lost")
            held.fenced("HSET", self.serverlock_runs, entry.name, state)
        except LockError as error:
            log.warning("%s is not sent now: %s", entry.name, error)
            self.schedule[entry.name] = entry
            self._heap, self._must_pause = None, True
            return
        super().apply_entry(entry, producer=producer)

    def close(self) -> None:
        """Lets another host continue at once."""
        self._is_closed = True
        try:
            super().close()
        finally:
            held, self._held = self._held, None
            if held is not None and held.is_held:
                held.release()

    def _leads(self) -> bool:
        if self._held is not None:
            if self._held.is_held:
                return True
            log.warning("another host may send the tasks now: %s", self._held.lost)
            self._held = None
        try:
            held = self.serverlock_lock.acquire()
            self._continue(held)
        except LockRefused:
            self._must_pause = False
            return False
        except LockError as error:
            log.warning("no task is sent: %s", error)
            self._must_pause = True
            return False
        self._held = held
        log.info("this host sends the tasks now, token %d", held.token)
        return True

    def _continue(self, held: Held) -> None:
        """Takes over when each entry last ran."""
        try:
            for name, entry in self.schedule.items():
                state: Any = held.fenced("HGET", self.serverlock_runs, name)
                if state is not None:
                    known = json.loads(state)
                    entry.last_run_at = datetime.fromisoformat(known["last_run_at"])
                    entry.total_run_count = known["total_run_count"]
        except BaseException:
            held.release()
            raise
        self._heap = None
