"""Time-outs of exchanges that follow each other, by one timer: `asyncio.timeout` makes and drops a timer for each."""

import asyncio


class Patience:
    """`with patience.of(5): await ...` raises TimeoutError when that takes longer. One such block at a time.

    It also raises a cancellation that was swallowed within: `asyncio.wait_for` does so before Python 3.12, and the
    client libraries send by it.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None
        self._seconds = self._end = 0.0
        self._before = 0
        self._is_over = False

    def of(self, seconds: float) -> "Patience":
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
            self._timer = self._loop.call_at(self._end, self._look)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        task, self._task = self._task, None
        if task is None:
            return
        if self._is_over:
            if task.uncancel() <= self._before and (kind is None or kind is asyncio.CancelledError):
                raise TimeoutError(f"no reply within {self._seconds:g} s") from error
        elif kind is None and task.cancelling() > self._before:
            raise asyncio.CancelledError

    def _look(self) -> None:
        """The timer lags behind: it was set for an earlier block, and is set anew for the one that runs."""
        self._timer = None
        if self._task is None:
            return
        if self._loop.time() < self._end:
            self._timer = self._loop.call_at(self._end, self._look)
        else:
            self._is_over = True
            self._task.cancel()
