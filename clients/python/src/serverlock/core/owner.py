"""The owner of a lock whose caller names none: `host:pid`, so that operators see which process holds what."""

import os
import socket

LONGEST = 128


class HostAndPid:
    """The default for the `owner` option."""

    def __repr__(self) -> str:
        return "'host:pid'"


HOST_AND_PID = HostAndPid()

_known: tuple[int, str] = (0, "")


def host_and_pid() -> str:
    """This process, which is a different one after a fork."""
    global _known
    pid = os.getpid()
    known = _known
    if known[0] != pid:
        known = _known = (pid, _label(socket.gethostname(), pid))
    return known[1]


def _label(host: str, pid: int) -> str:
    visible = "".join(letter if "!" <= letter <= "~" else "?" for letter in host)
    return f"{visible[: LONGEST - len(f':{pid}')]}:{pid}"
