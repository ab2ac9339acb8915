"""Waiting by NOTIFY: one connection that is subscribed to the channel of this process, and who hears what.

Messages are hints. An attempt asks the server again when it hears something, and when the connection is lost or comes back.
"""

import random
import secrets
import threading
import weakref
from typing import TYPE_CHECKING, Any

from .clock import now
from .wire import ConnectionLost, Connection, ReplyError

if TYPE_CHECKING:
    from .engine import Engine

IDLE_PING = 3.0


class News:
    """What one attempt hears."""

    def __init__(self, subscription: "Subscription") -> None:
        self._subscription = subscription
        self._flag = subscription.flag()
        self._heard: list[str] = []
        self.again_at = float("inf")

    def put(self, kind: str) -> None:
        self._heard.append(kind)
        self._flag.set()

    def stir(self) -> None:
        """Something about the connection has changed."""
        self._flag.set()

    async def wait(self, timeout: float) -> str | None:
        """The next message, or None: the time is over, or something about the connection has changed."""
        if not self._heard:
            await self._flag.wait(max(0.0, timeout))
        self._flag.clear()
        return self._heard.pop(0) if self._heard else None

    def forget(self) -> None:
        """What was heard before a new call says nothing about it."""
        self._heard.clear()


class Subscription:
    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._mutex = threading.Lock()
        # An attempt owns its entry: one that a signal handler ends in the middle of `unregister` leaves nothing behind.
        self._by_id: weakref.WeakValueDictionary[str, News] = weakref.WeakValueDictionary()
        self._connection: Connection | None = None
        self._listener = engine.runtime.worker(self._listen, "serverlock subscription")
        self._key = b""
        self.channel = f"serverlock:{secrets.token_hex(8)}"
        self.is_up = False
        self.refusal: ReplyError | None = None

    def flag(self) -> Any:
        return self._engine.runtime.flag()

    def register(self, id_: str, key: bytes) -> News:
        """Opens the connection when it is the first."""
        news = News(self)
        with self._mutex:
            self._by_id[id_] = news
            self._key = self._key or key
        self._listener.start()
        return news

    def unregister(self, id_: str) -> None:
        with self._mutex:
            self._by_id.pop(id_, None)

    async def ready(self, news: News, timeout: float) -> bool:
        """Waits until the connection is subscribed, or it is clear that it cannot be."""
        end = now() + timeout
        while not (self.is_up or self._engine.is_closed) and self.refusal is None and (left := end - now()) > 0:
            await news.wait(left)
        return self.is_up

    def send_again(self) -> None:
        """Has all attempts sent again, within a second: not all at once."""
        at = now()
        with self._mutex:
            waiting = list(self._by_id.values())
        for news in waiting:
            news.again_at = min(news.again_at, at + (random.random() if len(waiting) > 1 else 0.0))
            news.stir()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _listen(self) -> None:
        pause = 0.0
        while not self._engine.is_closed:
            if pause:
                await self._engine.runtime.sleep(pause)
            try:
                await self._subscribe()
                pause = 0.0
                await self._read()
            except ReplyError as error:
                self.refusal = error
                self.stir()
                return
            except ConnectionLost as error:
                if self._engine.is_closed:
                    return
                if self.is_up:
                    self._engine.log.warning("the connection for waiting was lost, and is opened again: %s", error)
                pause = min(1.0, pause * 2 or 0.05)
            finally:
                self.is_up = False
                await self.close()
            self.stir()

    async def _subscribe(self) -> None:
        timeout = self._engine.timeout
        connection = self._connection = await self._engine.wire.connect(self._key, timeout)
        reply = await connection.call(("SUBSCRIBE", self.channel), timeout)
        if not (isinstance(reply, list) and _text(reply[0]) == "subscribe"):
            raise ConnectionLost(ValueError(f"SUBSCRIBE was answered {reply!r}"))
        self.is_up = True
        self.send_again()

    async def _read(self) -> None:
        connection = self._connection
        if connection is None:
            return
        is_asked = False
        while not self._engine.is_closed:  # it may have been closed while this connection was opened
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

    def _pass_on(self, payload: Any) -> None:
        """`granted <id> <key>`"""
        words = (payload.encode() if isinstance(payload, str) else bytes(payload)).split(b" ", 2)
        if len(words) == 3:
            with self._mutex:
                news = self._by_id.get(words[1].decode("ascii", "replace"))
            if news is not None:
                news.put(words[0].decode("ascii", "replace"))

    def stir(self) -> None:
        with self._mutex:
            waiting = list(self._by_id.values())
        for news in waiting:
            news.stir()


def _text(word: Any) -> str:
    return word.decode("ascii", "replace") if isinstance(word, bytes) else str(word)
