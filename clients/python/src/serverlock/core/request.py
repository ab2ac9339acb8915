"""The arguments of a lock, checked before anything is sent, and its commands. Pure: no clock, no connection."""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

from ..errors import LockBadArgument
from .owner import HOST_AND_PID, LONGEST, HostAndPid, host_and_pid
from .wire import Word

Key: TypeAlias = str | bytes
Duration: TypeAlias = float | timedelta

TEN_YEARS = 315_360_000.0
LONGEST_NOTIFY = 3_600_000
MOST_HOLDERS = 4096
LONGEST_KEY = 4096
MOST_KEYS = 1024


_TAGGED = re.compile(rb"[^{]*\{[^}]+\}")


def shown(keys: Iterable[bytes]) -> str:
    """The keys as error texts show them."""
    return ", ".join(repr(key.decode()) if _is_text(key) else repr(key) for key in keys)


def _is_text(key: bytes) -> bool:
    try:
        return key.decode().isprintable()
    except UnicodeDecodeError:
        return False


def key_of(key: object) -> bytes:
    """The bytes of a key."""
    if isinstance(key, str):
        try:
            made = key.encode()
        except UnicodeEncodeError as error:
            raise LockBadArgument(repr(key), f"key cannot be encoded: {error}") from error
    elif isinstance(key, (bytes, bytearray, memoryview)):
        made = bytes(key)
    else:
        raise LockBadArgument(repr(key), f"key is {type(key).__name__}, not str or bytes")
    if len(made) > LONGEST_KEY:
        raise LockBadArgument(repr(made[:32]) + "...", f"key is longer than {LONGEST_KEY} bytes")
    return made


def queue_of(key: bytes) -> bytes | None:
    """The key of a lock's queue without the module. None: a name with a brace but no hash tag has none."""
    if b"{" not in key and b"}" not in key:
        return key + b":queue:{" + key + b"}"
    return key + b":queue" if _TAGGED.match(key) else None


def result_of(key: bytes) -> bytes | None:
    """The key of a lock's result without the module, named like its queue."""
    queue = queue_of(key)
    return None if queue is None else key + b":result" + queue[len(key) + len(b":queue") :]


def seconds_of(value: object, name: str, key: str, least: float, most: float = TEN_YEARS) -> float:
    """A duration in seconds, within these bounds."""
    if isinstance(value, timedelta):
        made = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        made = float(value)
    else:
        raise LockBadArgument(key, f"{name} is {value!r}, not a number of seconds or a timedelta")
    if math.isnan(made) or not least <= made <= most:
        raise LockBadArgument(key, f"{name} is {value!r}, not between {least:g} and {most:g} seconds")
    return made


def count_of(value: object, name: str, key: str, least: int, most: int) -> int:
    """A whole number within these bounds."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise LockBadArgument(key, f"{name} is {value!r}, not a whole number between {least} and {most}")
    return value


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One lock, as `lock`, `shared`, `limit`, `all_of` and `recover` describe it. Times are in seconds."""

    keys: tuple[bytes, ...]
    lease: float
    wait: float = 0.0
    kind: tuple[Word, ...] = ()
    many: bool = False
    recover: bool = False
    session: bool = False
    owner: str | HostAndPid | None = None
    details: bool = False
    replicas: int = 0
    replicas_within: float = 1.0
    fsync: bool = False
    at_least: float = 0.0
    max_hold: float = math.inf
    on_lost: Callable[[Any], object] | None = None
    reentrant: bool = False
    result: bool = False  # instead of the lock, the attempt may get the result of its holder
    name: str = field(init=False)
    _head: tuple[Word, ...] = field(init=False)
    _tail: tuple[Word, ...] = field(init=False)
    _queues: tuple[bytes | None, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        head: tuple[Word, ...] = (self.command, *self._named())
        tail: tuple[Word, ...] = ()
        if self.session:
            tail += (b"SESSION",)
        if self.details:
            tail += (b"DETAILS",)
        object.__setattr__(self, "name", shown(self.keys))
        object.__setattr__(self, "_head", head)
        object.__setattr__(self, "_tail", tail)

    @property
    def command(self) -> str:
        return "LOCK.MACQUIRE" if self.many else "LOCK.RECOVER" if self.recover else "LOCK.ACQUIRE"

    @property
    def key(self) -> bytes:
        """The key that determines the server in a cluster."""
        return self.keys[0]

    @property
    def lease_ms(self) -> int:
        return max(1, round(self.lease * 1000))

    @property
    def queues(self) -> tuple[bytes | None, ...]:
        """The queue of each key, where the module is not loaded."""
        if not self._queues:
            object.__setattr__(self, "_queues", tuple(queue_of(key) for key in self.keys))
        return self._queues

    @property
    def is_exclusive(self) -> bool:
        return not self.kind

    @property
    def is_plain(self) -> bool:
        """One key with one holder: the kind of lock that needs no queue."""
        return not self.kind and not self.many

    @property
    def needs_connection(self) -> bool:
        """Whether the grant belongs to a connection."""
        return self.session or self.replicas > 0 or self.fsync

    @property
    def needs_module(self) -> str | None:
        """Why only the module can do this; None if the script can."""
        if self.session:
            return "session needs the module, which is not loaded"
        if self.is_plain or None not in self.queues:
            return None
        what = "several keys need" if self.many else "shared needs" if self.kind[0] == b"SHARED" else "limit needs"
        return f"{what} the module, which is not loaded, for a key with a brace but no hash tag"

    def _named(self) -> tuple[Word, ...]:
        return (len(self.keys), *self.keys) if self.many else self.keys

    @property
    def _options(self) -> tuple[Word, ...]:
        """The options that all copies share. A fork changes the process, and so the default owner."""
        if self.owner is None:
            return (*self.kind, *self._tail)
        owner = host_and_pid() if isinstance(self.owner, HostAndPid) else self.owner
        return (*self.kind, b"OWNER", owner, *self._tail)

    def acquire(self, id_: str, wait_ms: int = 0, channel: str | None = None) -> tuple[Word, ...]:
        """ACQUIRE, MACQUIRE or RECOVER."""
        words = (*self._head, *self.options(id_, wait_ms, channel))
        return (*words, b"RESULT") if self.result and wait_ms else words

    def options(self, id_: str, wait_ms: int = 0, channel: str | None = None) -> tuple[Word, ...]:
        """The words after the keys."""
        if not wait_ms:
            return (b"PX", self.lease_ms, b"ID", id_, *self._options)
        if channel is None:
            return (b"PX", self.lease_ms, b"WAIT", wait_ms, b"ID", id_, *self._options)
        wait_ms = min(wait_ms, LONGEST_NOTIFY)
        return (b"PX", self.lease_ms, b"WAIT", wait_ms, b"ID", id_, b"NOTIFY", channel, *self._options)

    def extend(self, token: int, lease_ms: int) -> tuple[Word, ...]:
        name = "LOCK.MEXTEND" if self.many else "LOCK.EXTEND"
        return (name, *self._named(), token, b"PX", lease_ms)

    def release(self, token: int, result: bytes | None = None) -> tuple[Word, ...]:
        words = ("LOCK.MRELEASE" if self.many else "LOCK.RELEASE", *self._named(), token)
        return words if result is None else (*words, b"RESULT", result)

    def is_same_lock(self, other: "Request") -> bool:
        return self.kind == other.kind and set(self.keys) == set(other.keys)

    def was_held(self, reply: int) -> bool:
        """Whether a release's reply means that the lock was held to the end."""
        return reply == len(self.keys) if self.many else reply == 1


def _is_label(owner: object) -> bool:
    return isinstance(owner, str) and 1 <= len(owner) <= LONGEST and all("!" <= letter <= "~" for letter in owner)


def request_of(
    keys: Iterable[object],
    lease: object,
    *,
    wait: object = 0.0,
    owner: object = HOST_AND_PID,
    session: object = False,
    details: object = False,
    replicas: object = 0,
    replicas_within: object = 1.0,
    fsync: object = False,
    at_least: object = 0.0,
    max_hold: object = None,
    on_lost: Callable[[Any], object] | None = None,
    reentrant: object = False,
    kind: tuple[Word, ...] = (),
    many: bool = False,
    recover: bool = False,
    result: bool = False,
) -> Request:
    """The request that these options describe. Raises LockBadArgument, which names the lock and the argument."""
    named = tuple(key_of(key) for key in keys)
    name = shown(named)
    if not named:
        raise LockBadArgument("", "keys is empty: all_of needs at least one")
    if len(named) > MOST_KEYS:
        raise LockBadArgument(f"{name[:64]}...", f"keys are {len(named)}, more than {MOST_KEYS}")
    if len(set(named)) < len(named):
        raise LockBadArgument(name, "keys has the same key twice")
    if not (owner is None or isinstance(owner, HostAndPid) or _is_label(owner)):
        raise LockBadArgument(name, f"owner is {owner!r}, not 1 to 128 visible ASCII characters without a space")
    return Request(
        named,
        seconds_of(lease, "lease", name, 0.001),
        seconds_of(wait, "wait", name, 0, math.inf),
        owner=owner,  # type: ignore[arg-type]
        session=bool(session),
        details=bool(details),
        fsync=bool(fsync),
        at_least=seconds_of(at_least, "at_least", name, 0),
        max_hold=math.inf if max_hold is None else seconds_of(max_hold, "max_hold", name, 0.001, math.inf),
        replicas=count_of(replicas, "replicas", name, 0, 1000),
        replicas_within=seconds_of(replicas_within, "replicas_within", name, 0.001, 3600),
        on_lost=on_lost,
        reentrant=bool(reentrant),
        kind=kind,
        many=many,
        recover=recover,
        result=result,
    )
