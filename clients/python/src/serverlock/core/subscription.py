"""Waiting with NOTIFY: one connection subscribes to this process's channel, and passes messages to attempts.

Messages are hints. An attempt asks the server again after a message, or when the connection is lost or restored.
"""

import random
import secrets
import threading
from logging import Logger

from .weak import WeakMap
from .wire import Connection, ConnectionLost, Flag, Reply, ReplyError, Runtime, Wire

IDLE_PING = 3.0


class News:
    """The messages for one attempt."""

    def __init__(self, flag: Flag) -> None:
        self._flag = flag
        self._messages: list[str] = []
        self.again_at = float("inf")

    def put(self, kind: str) -> None:
        self._messages.append(kind)
        self._flag.set()

    def stir(self) -> None:
        """Call this when the connection has come up or been lost."""
        self._flag.set()

    async def wait(self, timeout: float) -> str | None:
        """The next message. None: the time is up, or the connection came up or was lost."""
        if not self._messages:
            await self._flag.wait(max(0.0, timeout))
        self._flag.clear()
        return self._messages.pop(0) if self._messages else None

    def forget(self) -> None:
        """Drops the messages that arrived before a new ACQUIRE, because they do not concern it."""
        self._messages.clear()


class Subscription:
    def __init__(self, runtime: Runtime, wire: Wire, timeout: float, log: Logger) -> None:
        self._runtime, self._wire, self._timeout, self._log = runtime, wire, timeout, log
        self._now = runtime.now
        self._is_closed = False
        self._mutex = threading.Lock()
        # An attempt owns its entry, so nothing stays behind if a signal handler ends it in the middle of `unregister`.
        self._by_id: WeakMap[str, News] = WeakMap()
        self._connection: Connection | None = None
        self._listener = runtime.worker(self._listen, "serverlock subscription")
        self._key = b""
        self.channel = f"serverlock:{secrets.token_hex(8)}"
        self.is_up = False
        self.refusal: ReplyError | None = None

    def register(self, id_: str, key: bytes) -> News:
        """Registers an attempt. The first one opens the connection."""
        news = News(self._runtime.flag())
        with self._mutex:
            self._by_id[id_] = news
            self._key = self._key or key
        self._listener.start()
        return news

    def unregister(self, id_: str) -> None:
        with self._mutex:
            self._by_id.pop(id_)

    async def ready(self, news: News, timeout: float) -> bool:
        """Waits until the connection is subscribed, or cannot be."""
        end = self._now() + timeout
        while not (self.is_up or self._is_closed) and self.refusal is None and (left := end - self._now()) > 0:
            await news.wait(left)
        return self.is_up

    def send_again(self) -> None:
        """Makes all attempts ask again, spread over a second."""
        at = self._now()
        with self._mutex:
            waiting = self._by_id.values()
        for news in waiting:
            news.again_at = min(news.again_at, at + (random.random() if len(waiting) > 1 else 0.0))
            news.stir()

    async def close(self) -> None:
        self._is_closed = True
        await self._disconnect()

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _listen(self) -> None:
        pause = 0.0
        while not self._is_closed:
            if pause:
                await self._runtime.sleep(pause)
            try:
                await self._subscribe()
                pause = 0.0
                await self._read()
            except ReplyError as error:
                self.refusal = error
                self.stir()
                return
            except ConnectionLost as error:
                if self._is_closed:
                    return
                if self.is_up:
                    self._log.warning("the connection for waiting was lost; opening a new one: %s", error)
                pause = min(1.0, pause * 2 or 0.05)
            finally:
                self.is_up = False
                await self._disconnect()
            self.stir()

    async def _subscribe(self) -> None:
        connection = self._connection = await self._wire.connect(self._key, self._timeout)
        reply = await connection.call(("SUBSCRIBE", self.channel), self._timeout)
        if not (isinstance(reply, list) and _text(reply[0]) == "subscribe"):
            raise ConnectionLost(ValueError(f"unexpected reply to SUBSCRIBE: {reply!r}"))
        self.is_up = True
        self.send_again()

    async def _read(self) -> None:
        connection = self._connection
        if connection is None:
            return
        is_asked = False
        while not self._is_closed:  # the manager may have been closed while this connection opened
            message = await connection.read(IDLE_PING)
            if message is None:
                if is_asked:
                    raise ConnectionLost(TimeoutError("no reply to PING"))
                await connection.send(("PING",))
                is_asked = True
                continue
            is_asked = False
            if isinstance(message, list) and len(message) == 3 and _text(message[0]) == "message":
                self._pass_on(message[2])

    def _pass_on(self, payload: Reply) -> None:
        """`granted <id> <key>`"""
        words = (payload.encode() if isinstance(payload, str) else bytes(payload)).split(b" ", 2)
        if len(words) == 3:
            with self._mutex:
                news = self._by_id.get(words[1].decode("ascii", "replace"))
            if news is not None:
                news.put(words[0].decode("ascii", "replace"))

    def stir(self) -> None:
        """Wakes all attempts."""
        with self._mutex:
            waiting = self._by_id.values()
        for news in waiting:
            news.stir()


def _text(word: object) -> str:
    return word.decode("ascii", "replace") if isinstance(word, bytes) else str(word)
