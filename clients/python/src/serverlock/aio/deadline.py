"""Time-outs for a series of exchanges, with one timer for all. `asyncio.timeout` creates and drops a timer for each."""

import asyncio


class Deadline:
    """`with deadline.after(5): await ...` raises TimeoutError after 5 s. Only one such block may be active.

    It also re-raises a cancellation that was swallowed inside the block. Before Python 3.12, `asyncio.wait_for`, which
    the client libraries use to send, swallows some.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None
        self._seconds = self._end = 0.0
        self._before = 0
        self._is_over = False

    def after(self, seconds: float) -> "Deadline":
        self._seconds = seconds
        return self

    def __enter__(self) -> None:
        task = self._task = asyncio.current_task()
        self._before = 0 if task is None else task.cancelling()
        self._is_over = False
        self._end = self._loop.time() + self._seconds
        if self._timer is None or self._timer.when() > self._end:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(self._end, self._expire)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        task, self._task = self._task, None
        if task is None:
            return
        if self._is_over:
            if task.uncancel() <= self._before and (kind is None or kind is asyncio.CancelledError):
                raise TimeoutError(f"no reply within {self._seconds:g} s") from error
        elif kind is None and task.cancelling() > self._before:
            raise asyncio.CancelledError

    def _expire(self) -> None:
        """If the timer was set for an earlier block, sets it again for the current one."""
        self._timer = None
        if self._task is None:
            return
        if self._loop.time() < self._end:
            self._timer = self._loop.call_at(self._end, self._expire)
        else:
            self._is_over = True
            self._task.cancel()
