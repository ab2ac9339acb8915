"""What the core needs from a client library (Wire, Connection) and threads or asyncio (Runtime), and their errors."""

from collections.abc import Callable, Coroutine, Hashable, Sequence
from typing import Any, Protocol, TypeAlias

Word: TypeAlias = bytes | str | int
Words: TypeAlias = Sequence[Word]
Reply: TypeAlias = Any  # an int, bytes, None, or a list of those: checked where it is read


class ConnectionLost(Exception):
    """No connection, or no reply in time; the connection is closed. `final`: trying again is useless."""

    def __init__(self, cause: BaseException, *, final: bool = False) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__)
        self.__cause__ = cause
        self.final = final


class ReplyError(Exception):
    """An error reply from the server."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code

    @property
    def is_unknown_command(self) -> bool:
        # The latter comes from within a script.
        return self.code == "ERR" and str(self).lower().startswith(("err unknown command", "err unknown redis command"))


# Client libraries strip the code from errors that they have a class for.
CODES = {
    "ReadOnlyError": "READONLY",
    "NoPermissionError": "NOPERM",
    "MovedError": "MOVED",
    "AskError": "ASK",
    "OutOfMemoryError": "OOM",
    "ClusterDownError": "CLUSTERDOWN",
    "SlotNotCoveredError": "CLUSTERDOWN",
    "TryAgainError": "TRYAGAIN",
    "BusyLoadingError": "LOADING",
    "MasterDownError": "MASTERDOWN",
    "NoScriptError": "NOSCRIPT",
    "ExecAbortError": "EXECABORT",
    "ModuleError": "ERR",
}

# Other codes are kept. But ERR is stripped too, and its text may begin with an option: "NOTIFY and SNOTIFY need ...".
OPTIONS = {"NOTIFY", "SNOTIFY", "SESSION", "SHARED", "LIMIT", "WAIT", "ID", "EX", "PX", "OWNER", "DETAILS"}


def reply_error(error: Exception) -> ReplyError:
    """The error reply behind a library error."""
    text = str(error)
    known = next((CODES[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in CODES), None)
    first = text.split(" ", 1)[0]
    code = known or (first if first.isalpha() and first.isupper() and first not in OPTIONS else "ERR")
    return ReplyError(code, text if text.startswith(code) else f"{code} {text}")


class Connection(Protocol):
    """A dedicated connection."""

    async def call(self, words: Words, timeout: float) -> Reply:
        """One exchange; after ConnectionLost the connection is closed."""

    async def send(self, words: Words) -> None: ...

    async def read(self, timeout: float) -> Reply:
        """The next reply or message; None if none arrived in time."""

    async def ready(self, timeout: float) -> bool:
        """Whether a reply arrives in time. Interrupting the caller leaves the connection and the reply as they are."""

    async def receive(self) -> Reply:
        """The reply that is ready."""

    async def close(self) -> None: ...

    @property
    def is_open(self) -> bool: ...


class Wire(Protocol):
    """The application's own client."""

    async def call(self, key: bytes, words: Words, timeout: float) -> Reply:
        """One exchange with the server that has the key, never sent twice. Raises ReplyError or ConnectionLost."""

    async def batch(self, calls: Sequence[tuple[bytes, Words]], timeout: float) -> list[Reply]:
        """Many exchanges at once, each with its reply, ReplyError or ConnectionLost."""

    async def connect(self, key: bytes, timeout: float) -> Connection:
        """A new connection to the server that has the key."""

    async def server_of(self, key: bytes) -> Hashable:
        """The server that has the key, in a cluster; otherwise always the same."""

    def narrow(self, congested: Callable[[], None]) -> bool:
        """Limits calls to one pool connection until `widen`. Returns False if they have used two at once.

        `congested` is called when callers queue for it.
        """

    def widen(self) -> None: ...

    async def refresh(self) -> None:
        """Asks a cluster again which server has which slot."""

    @property
    def in_use(self) -> int:
        """The number of running exchanges and queued calls, for tests."""

    @property
    def is_cluster(self) -> bool: ...


class Flag(Protocol):
    """Set from anywhere, awaited by one caller."""

    def set(self) -> None: ...

    def clear(self) -> None: ...

    async def wait(self, timeout: float) -> bool: ...


class Worker(Protocol):
    """Background work, started on demand. It does not keep the process alive."""

    def start(self) -> None:
        """Starts the work unless it is running. If the caller is interrupted here, the next caller starts it."""


class Runtime(Protocol):
    """Threads, or asyncio."""

    @property
    def now(self) -> Callable[[], float]:
        """The clock for leases. Whatever waits in the core waits on this clock."""

    @property
    def longest_nap(self) -> float:
        """How often that clock is read while there are holds, in seconds: nothing wakes during a suspend."""

    def caller(self) -> Hashable:
        """The thread or task that is running."""

    def flag(self) -> Flag: ...

    async def sleep(self, seconds: float) -> None: ...

    @property
    def linger(self) -> float:
        """How many seconds an idle worker waits for more work."""

    def worker(
        self, work: Callable[[], Coroutine[None, None, None]], name: str, more: Callable[[], bool] = lambda: False
    ) -> Worker:
        """`more`: whether to start the work again as soon as it ends."""

    async def finish(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Runs `work` to completion, even if the caller is cancelled in the meantime."""

    def later(self, seconds: float, work: Callable[[], object]) -> None:
        """Calls `work` once, even after `close`. Does not keep the process or the loop alive."""

    def call_back(self, work: Callable[[], object]) -> None:
        """Calls the user's code, which may take a long time."""

    def watch(self, connection: Connection, ended: Callable[[], None]) -> None:
        """Calls `ended` when the connection ends, unless `unwatch` comes first."""

    async def unwatch(self, connection: Connection) -> None: ...

    async def close(self) -> None: ...
