"""A Redis or Valkey server with the redis-lock module, for tests and laptops.

The package contains the module; the server is the one that is installed.

    with serverlock_server.Server() as server:
        client = redis.Redis.from_url(server.url)
"""

from .programs import ServerNotFound, find_server, module_path
from .server import Server, ServerFailed

__all__ = ["Server", "ServerFailed", "ServerNotFound", "find_server", "module_path"]
