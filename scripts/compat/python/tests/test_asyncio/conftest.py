"""The fixtures for asyncio."""

import pytest_asyncio

from ..conftest import PORT, AsyncClient


@pytest_asyncio.fixture
async def create_client():
    made = []

    async def create(**options):
        made.append(AsyncClient(port=PORT, **options))
        return made[-1]

    yield create
    for client in made:
        await client.aclose()


create_redis = create_valkey = create_client


@pytest_asyncio.fixture
async def r(create_client):
    client = await create_client()
    await client.flushall()
    return client
