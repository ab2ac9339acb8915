"""What a manager owns in one process, for its attempts: connections, ways to wait, work left to do."""

from .blocking import Blocking
from .connections import Connections
from .debts import Debts
from .module import Module
from .options import Options
from .server_clock import ServerClock
from .sessions import Sessions
from .subscription import Subscription
from .wire import Runtime, Wire


class Resources:
    def __init__(self, runtime: Runtime, wire: Wire, options: Options) -> None:
        self.runtime, self.wire = runtime, wire
        self.timeout, self.log = options.timeout, options.log
        self.debts = Debts(runtime)
        self.module = Module(runtime.now, wire, options)
        self.clock = ServerClock(runtime, wire, self.timeout)
        self.subscription = Subscription(runtime, wire, self.timeout, self.log)
        self.connections = Connections(runtime, wire, self.timeout)
        self.sessions = Sessions(runtime, wire, self.debts, self.timeout)
        self.blocking = Blocking(runtime.now, wire, self.timeout, self.debts.owe)
        self.notifies = True  # until the server refuses NOTIFY
        self.notify_works = False
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True
        self.debts.close()
        await self.subscription.close()
        await self.connections.close()
        await self.sessions.close()
        await self.runtime.close()
        # This comes last: waiting attempts end now, and their clean-up must not end with the runtime.
        self.subscription.stir()
        await self.blocking.close()
