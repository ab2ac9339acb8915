"""Locks for asyncio.

    locks = Locks(redis.asyncio.Redis())
    async with locks.lock("report", lease=30, wait=60) as held:
        held.token  # the fencing token: pass it to the storage with each write

If the lock is lost, the task that entered the block is cancelled there, and the block ends with LockLost.
"""

from ..core.campaign import Leadership
from ..core.hold import Predecessor
from ..core.once import Outcome
from .held import Held
from .leader import Leader
from .locks import Lock, Locks
from .once import HeldOnce, Once

__all__ = ["Held", "HeldOnce", "Leader", "Leadership", "Lock", "Locks", "Once", "Outcome", "Predecessor"]
