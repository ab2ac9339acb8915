"""Numbers the ticks of a period on the server's clock. Pure: the caller passes the time. Times are in seconds.

A tick begins at a multiple of the period. Its window is the time that is nearer to it than to any other tick: it begins
and ends half a period before and after the tick.
"""

import math

LEAST_PERIOD = 10.0
# How much later than its window's end a kept lease may end: twice MOST_DOUBT, plus the time to reach the server.
SLACK = 1.0


def tick_at(server_now: float, period: float) -> int:
    """The nearest tick. Halfway between two, it is the later one, because the earlier one's window has ended."""
    return math.floor(server_now / period + 0.5)


def begin_of(tick: int, period: float) -> float:
    """When the tick's window begins."""
    return (tick - 0.5) * period


def end_of(tick: int, period: float) -> float:
    """When the tick's window ends."""
    return (tick + 0.5) * period


def is_recovery(expired: float, tick: int, period: float) -> bool:
    """Whether a lease that expired then, on the server's clock, was that of a process that died within this window.

    The lease of a tick that has run expires when its window ends, which is when the next window begins.
    """
    return expired > begin_of(tick, period) + SLACK


def default_lease(period: float) -> float:
    """Short enough that another process may still run the tick if one dies soon after the tick begins."""
    return min(10.0, period / 4)
