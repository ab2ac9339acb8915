"""An in-memory lock server, for applications' unit tests.

    from serverlock import testing

    server = testing.Server()
    locks = server.locks()     # pass it to the code under test, in place of serverlock.Locks(client)
    server.clock.advance(30)   # time stands still until the test moves it

`serverlock.testing.aio` is the same for asyncio.
"""

from .thread_clock import Clock
from .threads import Server

__all__ = ["Clock", "Server"]
