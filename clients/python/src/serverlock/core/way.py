"""How a lock is requested, and what the replies mean: `commands` does it with the module, `script` without it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol, TypeAlias

from .hold import Grant, Predecessor
from .request import Request
from .wire import Reply, ReplyError, Word, Words

# Seconds after which a queued attempt asks again, unless the reply gives another number.
RESEND = 5.0
# The same while the manager is not subscribed.
RESEND_DOWN = 1.0


class No(Enum):
    """No grant, and no place in a queue."""

    REFUSED = auto()  # somebody else has it
    NOT_NOTIFIED = auto()  # this server does not know NOTIFY, or this user is not allowed to use it
    NOT_BLOCKED = auto()  # the module is gone, and a script cannot block


@dataclass(frozen=True, slots=True)
class Place:
    """The attempt asks again after a message, or after `again` seconds."""

    again: float = RESEND
    is_queued: bool = True  # False: it has no place in the queue, and polls


@dataclass(frozen=True, slots=True)
class Result:
    """The holder released the lock with this result."""

    value: bytes


Answer: TypeAlias = Grant | Place | No | Result
Call: TypeAlias = Callable[[Words], Awaitable[Reply]]


class Way(Protocol):
    @property
    def is_module(self) -> bool: ...

    def queues(self, request: Request) -> bool:
        """Whether an attempt can have a place in the queue and be notified."""

    async def prepare(self, key: bytes) -> None:
        """Called before an ACQUIRE is sent, with its key."""

    def acquire(self, request: Request, id_: str, wait_ms: int, channel: str | None) -> Words: ...

    def read(self, reply: Reply, sent: float, *, waits: bool) -> Answer:
        """What the reply to an ACQUIRE means. sent: when that was sent. Raises ReplyError if the reply is invalid."""

    async def cancel(self, request: Request, id_: str, channel: str, call: Call) -> None:
        """Ends the wait of this ID, or its grant."""

    def extend(self, request: Request, token: int, lease_ms: int) -> Words: ...

    def release(self, request: Request, token: int, result: bytes | None = None) -> Words:
        """result: for those that wait for it. A script cannot pass it on."""

    def check(self, request: Request, token: int, key: bytes) -> Words:
        """Checks one of the keys."""

    def info(self, request: Request) -> Words: ...

    def fenced(self, request: Request, token: int, words: Words) -> Words: ...


def read(reply: Reply, sent: float, is_portable: bool) -> Grant | Place | Result:
    """A non-nil reply, in the forms that both ways share."""
    if reply in (b"WAITING", "WAITING"):
        return Place()
    if isinstance(reply, int) and reply > 0:
        return Grant(reply, sent, None, is_portable)
    if isinstance(reply, list) and len(reply) == 4 and isinstance(reply[0], int):
        return Grant(reply[0], sent, _predecessor(reply), is_portable)
    if not is_portable and isinstance(reply, list) and len(reply) == 1 and isinstance(reply[0], (bytes, str)):
        return Result(reply[0].encode() if isinstance(reply[0], str) else reply[0])
    raise ReplyError("ERR", f"unexpected reply {reply!r}")


def _predecessor(details: list[Reply]) -> Predecessor | None:
    """From token, overdue-ms, previous token, previous owner. None: the lock was free."""
    if details[1] is None:
        return None
    owner = details[3].decode("ascii", "replace") if isinstance(details[3], bytes) else details[3]
    return Predecessor(details[1] / 1000, details[2], owner)


def fenced(script: str, request: Request, token: int, words: Words) -> tuple[Word, ...]:
    """A script that checks the lock, then runs one of the user's commands."""
    keys = (request.key, *words[1:2])
    return ("EVAL", script, len(keys), *keys, token, *words)
