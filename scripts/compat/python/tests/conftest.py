"""The fixtures that the lock tests of redis-py and valkey-py use, for the library that LIBRARY names."""

import importlib
import os

import pytest

library = importlib.import_module(os.environ["LIBRARY"])
library_asyncio = importlib.import_module(f"{library.__name__}.asyncio")
client_class = library.__name__.capitalize()
PORT = int(os.environ["PORT"])


# A lock's key lives until the first full millisecond after its lease.
class Client(getattr(library, client_class)):
    def pttl(self, name):
        return super().pttl(name) - 1


class AsyncClient(getattr(library_asyncio, client_class)):
    async def pttl(self, name):
        return await super().pttl(name) - 1


def _get_client(_kind, request=None, **options):
    client = Client(port=PORT, **options)
    request.addfinalizer(client.close)
    return client


@pytest.fixture
def r():
    with Client(port=PORT) as client:
        client.flushall()
        yield client
