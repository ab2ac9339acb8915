"""`python -m serverlock_server`: a server with the module, in the foreground."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile

from .programs import ServerNotFound, command_line, find_server, free_port, module_path


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m serverlock_server",
        description="Starts the installed redis-server or valkey-server with the redis-lock module, in the foreground.",
        epilog="All other options are the server's, such as --maxmemory 100mb.",
        allow_abbrev=False,
    )
    parser.add_argument("--port", type=int, help="the port; a free one by default")
    parser.add_argument("--server", help="the server program, instead of the one in the PATH")
    parser.add_argument("--module", action="store_true", help="only print the module's path")
    known, options = parser.parse_known_args(arguments)
    if known.module:
        print(module_path())
        return
    try:
        server = find_server(known.server)
    except ServerNotFound as error:
        sys.exit(f"serverlock_server: {error}")
    port = known.port or free_port()
    command = command_line(server, module_path(), port, tempfile.gettempdir(), options)
    print(f"redis://127.0.0.1:{port}", flush=True)
    # The server takes the place of this process, so signals and the exit status are its own.
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
