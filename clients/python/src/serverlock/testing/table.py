"""The locks and queues of an in-memory server. They follow the module's rules, as far as the packages use them."""

import itertools
from collections.abc import Callable

from ..core.wire import Reply, ReplyError
from .clock import Clock
from .lock import CLAIM, MARGIN, PLACE, Ask, Client, Grant, Lock, Waiter

WAITING = "WAITING"


class Pending:
    """A reply that arrives later."""


PENDING = Pending()


class Table:
    def __init__(self, clock: Clock, publish: Callable[[bytes, bytes], None]) -> None:
        self._clock, self._publish = clock, publish
        self._locks: dict[bytes, Lock] = {}
        self._queues: dict[bytes, list[Waiter]] = {}
        self._orders = itertools.count(1)
        # An ID that left a queue, or was refused, has its place there for a while: its order, since when, until when.
        self._places: dict[tuple[tuple[bytes, ...], bytes], tuple[int, float, float]] = {}
        # Attempts that were notified of a result, and until when each can fetch it.
        self._results: dict[tuple[bytes, bytes], tuple[bytes, float]] = {}
        self._last_token = 0
        self.refused: dict[bytes, ReplyError] = {}

    def lock(self, key: bytes) -> Lock:
        lock = self._locks.setdefault(key, Lock())
        lock.forget(self._clock.now())
        return lock

    def queue(self, key: bytes) -> list[Waiter]:
        return self._queues.get(key, [])

    # Commands

    def acquire(self, ask: Ask, client: Client | None) -> Reply | Pending:
        now = self._clock.now()
        self.check_allowed(ask.keys)
        result = self._result(ask, now)
        if result is not None:
            return [result]
        own = self._waiter(ask.keys, ask.id)
        grants = self._held(ask)
        if grants:
            for grant in grants:
                self._prolong(grant, ask, client)
            return self._reply(ask, grants[0])
        order, since = self._place(ask, own)
        if own is not None:
            self._leave(own)
        blocked = self._blocked_at(ask, order)
        if blocked is None:
            return self._reply(ask, self._grant(ask, client))
        if not ask.wait or (ask.channel is None and client is None):
            self._reserve(ask, order, since)
            return None
        answer = client.deliver if ask.channel is None and client is not None else None
        self._join(Waiter(ask, blocked, order, since, now + ask.wait, client, answer))
        return PENDING if ask.channel is None else WAITING

    def recover(self, ask: Ask, client: Client | None) -> Reply:
        self.check_allowed(ask.keys)
        lock = self.lock(ask.keys[0])
        if not lock.grants or lock.live(self._clock.now()) or self.queue(ask.keys[0]):
            return None
        return self._reply(ask, self._grant(ask, client))

    def extend(self, keys: tuple[bytes, ...], token: int, lease: float) -> int:
        self.check_allowed(keys)
        now = self._clock.now()
        grants = [self.lock(key).find(token) for key in keys]
        alive = [grant for grant in grants if grant is not None and grant.ends > now and grant.claimant is None]
        if len(alive) < len(keys):
            return 0
        for grant in alive:
            grant.lasts(lease, now)
        return 1

    def release(self, key: bytes, token: int, result: bytes | None = None) -> int:
        lock = self.lock(key)
        grant = lock.find(token)
        if grant is None:
            return 0
        in_time = grant.ends > self._clock.now()
        lock.drop(grant)
        if in_time and result is not None and grant.claimant is None:
            self._pass_on(key, result)
        self.serve(key)
        return 1 if in_time else -1

    def _pass_on(self, key: bytes, result: bytes) -> None:
        """Each attempt with RESULT in the queue gets the result instead of the lock."""
        for waiter in [it for it in self.queue(key) if it.ask.has_result]:
            self._leave(waiter)
            if waiter.answer is not None:
                waiter.answer([result])
            elif waiter.ask.id is not None:
                self._results[key, waiter.ask.id] = result, self._clock.now() + CLAIM
                self._notify(waiter, b"result")

    def _result(self, ask: Ask, now: float) -> bytes | None:
        self._results = {of: it for of, it in self._results.items() if it[1] > now}
        found = self._results.get((ask.keys[0], ask.id)) if ask.has_result and ask.id is not None else None
        return None if found is None else found[0]

    def check(self, key: bytes, token: int) -> int:
        grant = self.lock(key).find(token)
        if grant is None or grant.claimant is not None:
            return 0
        return max(0, int(round((grant.lease_ends - self._clock.now()) * 1000, 3)))

    def cancel(self, key: bytes, id_: bytes) -> int:
        waiter = next(
            (it for queue in self._queues.values() for it in queue if it.ask.id == id_ and key in it.ask.keys), None
        )
        for place in [place for place in self._places if place[1] == id_ and key in place[0]]:
            del self._places[place]
        if waiter is not None:
            self._end(waiter, b"cancelled")
            return 1
        lock = self.lock(key)
        grant = lock.find_id(id_, self._clock.now())
        if grant is None:
            return 0
        lock.drop(grant)
        self.serve(key)
        return 1

    # What tests do

    def expire(self, key: bytes) -> None:
        """The lease of each holder ends, and the margin after it."""
        now = self._clock.now()
        for grant in self.lock(key).live(now):
            if grant.claimant is None:
                grant.lease_ends, grant.ends = min(grant.lease_ends, now), now
        self.serve(key)

    def take_away(self, keys: tuple[bytes, ...], token: int) -> None:
        for key in keys:
            self.release(key, token)

    def refuse(self, key: bytes, error: ReplyError) -> None:
        self.refused[key] = error
        for waiter in [it for queue in self._queues.values() for it in queue if key in it.ask.keys]:
            self._end(waiter, b"unblocked", error)

    def check_allowed(self, keys: tuple[bytes, ...]) -> None:
        for key in keys:
            if key in self.refused:
                raise self.refused[key].with_traceback(None)

    def disconnect(self, client: Client) -> None:
        """A connection has ended: its waits end, and a margin later its locks."""
        now = self._clock.now()
        for waiter in [it for queue in self._queues.values() for it in queue if it.client is client]:
            if waiter.answer is not None:
                self._leave(waiter)
                self._reserve(waiter.ask, waiter.order, waiter.since)
                self.serve(waiter.key)
        for lock in list(self._locks.values()):
            for grant in lock.live(now):
                if grant.session is client:
                    grant.lease_ends, grant.ends = min(grant.lease_ends, now), min(grant.ends, now + MARGIN)

    # Time

    def next_due(self) -> float:
        now = self._clock.now()
        due = [waiter.deadline for queue in self._queues.values() for waiter in queue]
        for key, lock in self._locks.items():
            has_queue = bool(self.queue(key))
            due += [grant.ends for grant in lock.live(now) if has_queue or grant.claimant is not None]
        return min(due, default=float("inf"))

    def run_due(self) -> None:
        now = self._clock.now()
        for key, lock in list(self._locks.items()):
            for grant in [it for it in lock.grants if it.claimant is not None and it.ends <= now]:
                waiter = grant.claimant
                lock.drop(grant)
                if waiter is not None:
                    self._reserve(waiter.ask, waiter.order, waiter.since)
            self.serve(key)
        for waiter in [it for queue in self._queues.values() for it in queue if it.deadline <= now]:
            self._reserve(waiter.ask, waiter.order, waiter.since)
            self._end(waiter, b"timeout")

    # Queues

    def serve(self, key: bytes) -> None:
        """Grants the lock to the waiters at the head of the queue, as long as it is free for them."""
        while queue := self.queue(key):
            waiter = queue[0]
            blocked = self._blocked_at(waiter.ask, waiter.order)
            if blocked == key:
                return
            self._leave(waiter)
            if blocked is not None:  # one of several keys: it waits for another one now
                waiter.key = blocked
                self._join(waiter)
                continue
            self._hand_over(waiter)

    def _hand_over(self, waiter: Waiter) -> None:
        ask = waiter.ask
        if waiter.answer is not None:
            waiter.answer(self._reply(ask, self._grant(ask, waiter.client)))
            return
        now, token = self._clock.now(), self._next_token()
        for key in ask.keys:
            grant = self.lock(key).add(ask, token, now)
            grant.claimant, grant.lease_ends, grant.ends = waiter, now, now + CLAIM
        self._notify(waiter, b"granted")

    def _blocked_at(self, ask: Ask, order: float) -> bytes | None:
        """The first key that the attempt cannot have: others hold it, or are ahead in its queue."""
        now = self._clock.now()
        for key in ask.keys:
            if not self.lock(key).admits(ask, now) or any(waiter.order < order for waiter in self.queue(key)):
                return key
        return None

    def _place(self, ask: Ask, own: Waiter | None) -> tuple[int, float]:
        """The attempt's place: its order, and since when it has had it."""
        if own is not None:
            return own.order, own.since
        now = self._clock.now()
        if ask.id is not None:
            order, since, until = self._places.pop((ask.keys, ask.id), (0, 0.0, 0.0))
            if until > now:
                return order, since
        return next(self._orders), now

    def _reserve(self, ask: Ask, order: int, since: float) -> None:
        if ask.id is not None:
            now = self._clock.now()
            self._places = {place: it for place, it in self._places.items() if it[2] > now}
            self._places[ask.keys, ask.id] = order, since, now + PLACE

    def _waiter(self, keys: tuple[bytes, ...], id_: bytes | None) -> Waiter | None:
        waiters = (it for queue in self._queues.values() for it in queue)
        return next((it for it in waiters if id_ is not None and it.ask.id == id_ and it.ask.keys == keys), None)

    def _join(self, waiter: Waiter) -> None:
        queue = self._queues.setdefault(waiter.key, [])
        queue.append(waiter)
        queue.sort(key=lambda it: it.order)

    def _leave(self, waiter: Waiter) -> None:
        queue = self._queues[waiter.key]
        queue.remove(waiter)
        if not queue:
            del self._queues[waiter.key]

    def _end(self, waiter: Waiter, message: bytes, error: ReplyError | None = None) -> None:
        self._leave(waiter)
        if waiter.answer is not None:
            waiter.answer(error)
        else:
            self._notify(waiter, message)
        self.serve(waiter.key)

    def _notify(self, waiter: Waiter, message: bytes) -> None:
        ask = waiter.ask
        if ask.channel is not None and ask.id is not None:
            self._publish(ask.channel, b" ".join((message, ask.id, ask.keys[0])))

    # Grants

    def _held(self, ask: Ask) -> list[Grant]:
        """The grants that this attempt has, or may claim: one for each of its keys."""
        now = self._clock.now()
        grants = [grant for key in ask.keys if (grant := self.lock(key).find_id(ask.id, now)) is not None]
        is_one = len(grants) == len(ask.keys) and len({grant.token for grant in grants}) == 1
        return grants if is_one else []

    def _grant(self, ask: Ask, client: Client | None) -> Grant:
        token, now = self._next_token(), self._clock.now()
        grants = [self.lock(key).add(ask, token, now) for key in ask.keys]
        for grant in grants:
            self._prolong(grant, ask, client)
        return grants[0]

    def _prolong(self, grant: Grant, ask: Ask, client: Client | None) -> None:
        """An attempt gets its grant, or asks for it again."""
        now = self._clock.now()
        if grant.id is None:
            grant.id, grant.owner, grant.claimant = ask.id, ask.owner, None
            grant.lasts(ask.lease, now)
        elif grant.lease_ends < now + ask.lease:
            grant.lasts(ask.lease, now)
        grant.session = client if ask.is_session else None

    def _next_token(self) -> int:
        self._last_token = max(self._last_token + 1, int(self._clock.time() * 1_000_000))
        return self._last_token

    def _reply(self, ask: Ask, grant: Grant) -> Reply:
        return [grant.token, *grant.predecessor()] if ask.has_details else grant.token
