"""Waiting in the module's or the script's queue, and being notified.

An attempt asks, and asks again after a message or after the time that the reply gives. If the script has no queue for
it, or the manager may not subscribe, that time is short: the attempt polls.
"""

from . import kinds
from .asking import Asker
from .hold import Grant
from .subscription import News
from .way import RESEND_DOWN, No, Place, Way

# A server whose clock runs a little fast ends a wait a little early.
SLACK = 0.1


class Waiter:
    def __init__(self, asker: Asker) -> None:
        self._asker, self._resources = asker, asker.resources
        self._subscription = asker.resources.subscription
        self._news: News | None = None

    async def wait(self) -> Grant | None:
        """Returns the grant. None: the module is loaded but does not notify, so the attempt has to block."""
        asker, module, message = self._asker, self._resources.module, None
        try:
            while asker.left() > 0:
                way = module.way(asker.request)
                channel = await self._channel(way)
                if channel is None:
                    if way.is_module:
                        return None
                    way = module.polling(asker.request)
                if self._news is not None:
                    self._news.forget()
                    self._news.again_at = float("inf")
                answer = await asker.ask(way, asker.left_ms(), channel)
                if isinstance(answer, Grant):
                    return answer
                if isinstance(answer, Place):
                    if message == "granted" and answer.is_queued:
                        self._subscription.send_again()  # too late: the channel is skipped until an attempt asks again
                    message = await self._message(answer.again)
                elif answer is No.REFUSED:
                    asker.is_known = False
                    if asker.left() > SLACK:
                        raise kinds.refused(asker.request.name)
            raise asker.timed_out()
        finally:
            if self._news is not None:
                self._subscription.unregister(asker.id)

    async def _channel(self, way: Way) -> str | None:
        """The channel that notifies the attempt. None if the attempt cannot be notified."""
        asker, resources, subscription = self._asker, self._resources, self._subscription
        if not way.queues(asker.request) or (way.is_module and not resources.notifies):
            return None
        if way.is_module:
            await resources.blocking.end()
        if self._news is None:
            self._news = subscription.register(asker.id, asker.request.key)
            await subscription.ready(self._news, min(RESEND_DOWN, asker.left()))
        if subscription.is_up or subscription.refusal is None:
            return subscription.channel
        resources.notifies = False
        if asker.is_known and not asker.way.is_module:  # the user has lost permission to subscribe
            subscription.unregister(asker.id)
            asker.leave_queue()
        return None

    async def _message(self, again: float) -> str | None:
        """Returns when it is time to ask again, with the message that prompted it, if any."""
        asker, subscription, news = self._asker, self._subscription, self._news
        asked = asker.now()
        while True:
            asker.check_open()
            pause = again if subscription.is_up else min(again, RESEND_DOWN)
            at = min(asked + pause, asker.deadline, news.again_at if news is not None else asker.deadline)
            if (left := at - asker.now()) <= 0:
                return None
            if news is None:
                await self._resources.runtime.sleep(left)
                continue
            kind = await news.wait(left)
            if kind == "cancelled":
                asker.is_known = False
                raise kinds.refused(asker.request.name)
            if kind == "timeout" and asker.left() <= SLACK:
                asker.is_known = False
                raise asker.timed_out()
            if kind is not None:
                return kind
