"""Asks with LOCK.*, the module's commands."""

from .request import Request
from .way import Answer, Call, No, fenced, read
from .wire import Reply, Words

FENCED = (
    "if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) == 0 then return {'LOCK.LOST'} end "
    "return {redis.call(unpack(ARGV, 2))}"
)


class Commands:
    is_module = True

    def queues(self, request: Request) -> bool:
        return True

    async def prepare(self, key: bytes) -> None:
        pass

    def acquire(self, request: Request, id_: str, wait_ms: int, channel: str | None) -> Words:
        return request.acquire(id_, wait_ms, channel)

    def read(self, reply: Reply, sent: float, *, waits: bool) -> Answer:
        return No.REFUSED if reply is None else read(reply, sent, False)

    async def cancel(self, request: Request, id_: str, channel: str, call: Call) -> None:
        for key in request.keys:
            await call(("LOCK.CANCEL", key, id_))

    def extend(self, request: Request, token: int, lease_ms: int) -> Words:
        return request.extend(token, lease_ms)

    def release(self, request: Request, token: int, result: bytes | None = None) -> Words:
        return request.release(token, result)

    def check(self, request: Request, token: int, key: bytes) -> Words:
        return ("LOCK.CHECK", key, token)

    def info(self, request: Request) -> Words:
        return ("LOCK.INFO", request.key)

    def fenced(self, request: Request, token: int, words: Words) -> Words:
        return fenced(FENCED, request, token, words)


def fields_of(reply: Reply) -> dict[str, Reply]:
    """The fields of a reply to LOCK.INFO."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=False)
    return {text_of(name): value for name, value in pairs}


def text_of(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
