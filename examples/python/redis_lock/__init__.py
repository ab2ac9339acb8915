"""A lock of redis-lock for redis-py: Lock here, and in redis_lock.aio for asyncio."""

from .attempt import LockError, LockLost, LockRefused, LockReply, LockUnsupported
from .blocking import Lock

__all__ = ["Lock", "LockError", "LockLost", "LockRefused", "LockReply", "LockUnsupported"]
