"""Where the module and the installed server are, and how the server is called."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Union

StrPath = Union[str, "os.PathLike[str]"]

NAMES = ("redis-server", "valkey-server")
# For tests and laptops: only this machine connects, and nothing is kept.
DEFAULTS = ("--bind", "127.0.0.1", "--save", "", "--appendonly", "no")


class ServerNotFound(Exception):
    """There is no server to start."""


def module_path() -> Path:
    """The module: the file of `REDIS_LOCK_MODULE`, or the one in this package."""
    named = os.environ.get("REDIS_LOCK_MODULE")
    return Path(named).resolve() if named else Path(__file__).with_name("libredis_lock.so")


def find_server(named: StrPath | None = None) -> str:
    """The path of `named`, of `REDIS_SERVER`, or of the redis-server or valkey-server in the PATH."""
    one = named or os.environ.get("REDIS_SERVER")
    for name in (one,) if one else NAMES:
        found = shutil.which(name)
        if found:
            return os.path.abspath(found)
    if one:
        raise ServerNotFound(f"there is no program {os.fspath(one)}")
    raise ServerNotFound("neither redis-server nor valkey-server is in the PATH; REDIS_SERVER can name another program")


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def command_line(server: StrPath | None, module: Path, port: int, folder: StrPath, options: Sequence[str]) -> list[str]:
    """What starts the server. `options` come last, so they replace the defaults."""
    where = ("--port", str(port), "--dir", os.fspath(folder))
    return [find_server(server), *where, *DEFAULTS, "--loadmodule", str(module), *options]
