"""The commands of an in-memory server: their arguments and replies."""

from collections.abc import Callable

from ..core.wire import Reply, ReplyError, Words
from .clock import Clock
from .lock import Ask, Client, Grant
from .table import Pending, Table


class Commands:
    """Each command that a manager can send. Calls are serialized by the clock's mutex."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._subscribers: dict[bytes, list[Client]] = {}
        self._data: dict[bytes, bytes] = {}
        self.table = Table(clock, self._publish)
        self._by_name: dict[bytes, Callable[[list[bytes], Client | None], Reply | Pending]] = {
            b"LOCK.ACQUIRE": lambda words, client: self.table.acquire(_ask(words[:1], words[1:]), client),
            b"LOCK.MACQUIRE": lambda words, client: self.table.acquire(_ask(*_many(words)), client),
            b"LOCK.RECOVER": self._recover,
            b"LOCK.EXTEND": lambda words, _: self._extend(words[:1], words[1:]),
            b"LOCK.MEXTEND": lambda words, _: self._extend(*_many(words)),
            b"LOCK.RELEASE": lambda words, _: self.table.release(words[0], int(words[1]), *words[3:]),
            b"LOCK.MRELEASE": self._release_all,
            b"LOCK.CHECK": lambda words, _: self.table.check(words[0], int(words[1])),
            b"LOCK.CANCEL": lambda words, _: self.table.cancel(words[0], words[1]),
            b"LOCK.INFO": lambda words, _: self.info(words[0]),
            b"EVAL": self._fenced,
            b"TIME": self._time,
            b"PING": lambda *_: b"PONG",
            b"SUBSCRIBE": self._subscribe,
        }
        clock.drive(self.table)

    def execute(self, words: Words, client: Client | None = None) -> Reply | Pending:
        """A reply or ReplyError. Pending: the connection gets it later."""
        first, *rest = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        with self._clock.mutex:
            self._clock.activity += 1
            run = self._by_name.get(first.upper())
            if run is None:
                return ReplyError("ERR", f"ERR unknown command '{first.decode()}': this server is in memory, for tests")
            try:
                return run(rest, client)
            except ReplyError as error:
                return error

    def disconnect(self, client: Client) -> None:
        with self._clock.mutex:
            for channel in self._subscribers.values():
                if client in channel:
                    channel.remove(client)
            self.table.disconnect(client)

    def info(self, key: bytes) -> list[Reply]:
        """LOCK.INFO"""
        now, lock, queue = self._clock.now(), self.table.lock(key), self.table.queue(key)
        live = lock.live(now)
        state = "held" if live else "expired" if lock.grants else "free"
        grant = max(live or lock.grants, key=lambda it: it.ends, default=None)
        fields: dict[str, Reply] = dict.fromkeys(FIELDS) | {"state": state, "waiters": len(queue)}
        if queue:
            fields["oldest-wait-ms"] = _ms(now - queue[0].since)
        if grant is not None:
            fields |= _shown(grant, now, bool(live))
        return [item for pair in fields.items() for item in pair]

    def _recover(self, words: list[bytes], client: Client | None) -> Reply:
        ask = _ask(words[:1], words[1:])
        ask.has_details = True
        return self.table.recover(ask, client)

    def _extend(self, keys: list[bytes], words: list[bytes]) -> Reply:
        return self.table.extend(tuple(keys), int(words[0]), int(words[2]) / 1000)

    def _release_all(self, words: list[bytes], _: Client | None) -> Reply:
        keys, (token,) = _many(words)
        return sum(self.table.release(key, int(token)) != 0 for key in keys)

    def _time(self, *_: object) -> Reply:
        micros = round(self._clock.time() * 1_000_000)
        return [b"%d" % (micros // 1_000_000), b"%d" % (micros % 1_000_000)]

    def _subscribe(self, words: list[bytes], client: Client | None) -> Reply:
        if client is not None:
            self._subscribers.setdefault(words[0], []).append(client)
        return [b"subscribe", words[0], 1]

    def _publish(self, channel: bytes, message: bytes) -> None:
        for client in tuple(self._subscribers.get(channel, ())):
            client.deliver([b"message", channel, message])

    def _fenced(self, words: list[bytes], _: Client | None) -> Reply:
        """The script of `fenced`: the lock's key and the command's, the token, the command."""
        count = int(words[1])
        key, (token, *command) = words[2], words[2 + count :]
        if not self.table.check(key, int(token)):
            return [b"LOCK.LOST"]
        match [command[0].upper(), *command[1:]]:
            case [b"GET", name]:
                return [self._data.get(name)]
            case [b"SET", name, value]:
                self._data[name] = value
                return [b"OK"]
            case [b"DEL", name]:
                return [int(self._data.pop(name, None) is not None)]
            case [b"INCR", name]:
                self._data[name] = b"%d" % (int(self._data.get(name, b"0")) + 1)
                return [int(self._data[name])]
        raise ReplyError("ERR", f"ERR the server in memory runs GET, SET, DEL and INCR, not {b' '.join(command)!r}")


FIELDS = (
    *("state", "token", "id", "owner", "timestamp", "held-ms", "lease-ms", "free-in-ms", "overdue-ms"),
    *("session", "client", "addr", "waiters", "oldest-wait-ms"),
)


def _shown(grant: Grant, now: float, is_live: bool) -> dict[str, Reply]:
    """The fields of a holder, or of the last one."""
    shown: dict[str, Reply] = {"token": grant.token, "owner": grant.owner, "id": grant.id}
    if not is_live:
        return shown | {"overdue-ms": _ms(now - grant.ends)}
    # The lease is rounded down, and the time until the lock is free up.
    lease_ms = _ms(max(0.0, grant.lease_ends - now))
    free_ms = _ms(grant.ends - now)
    return shown | {"held-ms": _ms(now - grant.granted), "lease-ms": lease_ms, "free-in-ms": free_ms + 1}


def _ms(seconds: float) -> int:
    return int(round(seconds * 1000, 3))


def _many(words: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """The keys that follow their number, and the rest."""
    count = int(words[0])
    return words[1 : count + 1], words[count + 1 :]


def _ask(keys: list[bytes], options: list[bytes]) -> Ask:
    ask, rest = Ask(tuple(keys)), iter(options)
    for name in rest:
        match name.upper():
            case b"PX":
                ask.lease = int(next(rest)) / 1000
            case b"WAIT":
                ask.wait = int(next(rest)) / 1000
            case b"ID":
                ask.id = next(rest)
            case b"OWNER":
                ask.owner = next(rest)
            case b"NOTIFY":
                ask.channel = next(rest)
            case b"SHARED":
                ask.share()
            case b"LIMIT":
                ask.share(int(next(rest)))
            case b"SESSION":
                ask.is_session = True
            case b"DETAILS":
                ask.has_details = True
            case b"RESULT":
                ask.has_result = True
            case _:
                raise ReplyError("ERR", f"ERR the server in memory does not know the option {name!r}")
    return ask
