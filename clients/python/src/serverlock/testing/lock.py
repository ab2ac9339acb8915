"""The rules for one lock in memory: who has it, who may have it next. The caller passes the time, in seconds."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from ..core.request import MOST_HOLDERS
from ..core.wire import Reply

# The module's defaults.
MARGIN = 1.0
RETENTION = 60.0
CLAIM = 2.0
PLACE = 10.0


class Client(Protocol):
    """A connection to the in-memory server."""

    def deliver(self, reply: Reply) -> None: ...


@dataclass(slots=True)
class Ask:
    """An ACQUIRE, MACQUIRE or RECOVER."""

    keys: tuple[bytes, ...]
    lease: float = 0.0
    wait: float = 0.0
    id: bytes | None = None
    owner: bytes | None = None
    channel: bytes | None = None
    most: int = 1
    is_alone: bool = True
    is_session: bool = False
    has_details: bool = False
    has_result: bool = False

    def share(self, most: int = MOST_HOLDERS) -> None:
        self.is_alone, self.most = False, most


@dataclass(slots=True, eq=False)
class Grant:
    """One holder. Others may have the lock at `ends`, a margin after the end of the lease."""

    token: int
    is_alone: bool
    granted: float
    lease_ends: float = 0.0
    ends: float = 0.0
    id: bytes | None = None
    owner: bytes | None = None
    session: Client | None = None
    replaced: list["Grant"] = field(default_factory=list)  # expired ones; the first is the predecessor
    claimant: "Waiter | None" = None  # who has been notified, and has not claimed it yet

    def lasts(self, lease: float, now: float) -> None:
        self.lease_ends, self.ends = now + lease, now + lease + MARGIN

    def belongs_to(self, id_: bytes | None) -> bool:
        return id_ is not None and id_ in (self.id, self.claimant and self.claimant.ask.id)

    def predecessor(self) -> list[Reply]:
        """How long it was overdue, its token and its owner."""
        if not self.replaced:
            return [None, None, None]
        before = self.replaced[0]
        return [max(0, round((self.granted - before.ends) * 1000)), before.token, before.owner]


@dataclass(slots=True, eq=False)
class Waiter:
    """An attempt in the queue of `key`. `answer` ends a blocked one; others are notified on their channel."""

    ask: Ask
    key: bytes
    order: int
    since: float
    deadline: float
    client: Client | None
    answer: Callable[[Reply], None] | None


class Lock:
    """The holders of one key, and those whose lease has expired."""

    def __init__(self) -> None:
        self.grants: list[Grant] = []

    def live(self, now: float) -> list[Grant]:
        return [grant for grant in self.grants if grant.ends > now]

    def forget(self, now: float) -> None:
        """Drops what expired long ago."""
        self.grants = [grant for grant in self.grants if grant.ends + RETENTION > now]

    def admits(self, ask: Ask, now: float) -> bool:
        live = self.live(now)
        if ask.is_alone:
            return not live
        return len(live) < ask.most and not any(grant.is_alone for grant in live)

    def add(self, ask: Ask, token: int, now: float) -> Grant:
        """Grants the lock, in place of the holders that expired if it needs their place."""
        expired = sorted((grant for grant in self.grants if grant.ends <= now), key=lambda grant: grant.ends)
        if not ask.is_alone and not any(grant.is_alone for grant in expired):
            expired = expired[:1] if len(self.grants) >= ask.most else []
        grant = Grant(token, ask.is_alone, now, replaced=expired)
        self.grants = [it for it in self.grants if it not in expired] + [grant]
        return grant

    def find(self, token: int) -> Grant | None:
        return next((grant for grant in self.grants if grant.token == token), None)

    def find_id(self, id_: bytes | None, now: float) -> Grant | None:
        return next((grant for grant in self.live(now) if grant.belongs_to(id_)), None)

    def drop(self, grant: Grant) -> None:
        """Ends a grant. One that nobody claimed is undone."""
        self.grants.remove(grant)
        if grant.claimant is not None:
            self.grants += grant.replaced
