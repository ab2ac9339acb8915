"""Fixtures: one server for a test session, and its URL with an empty database for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .server import Server


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("lock_server_program", "the server for `lock_server`, instead of the one in the PATH", default="")
    parser.addini("lock_server_options", "more options for the server of `lock_server`", type="args", default=[])


@pytest.fixture(scope="session")
def lock_server(pytestconfig: pytest.Config) -> Iterator[Server]:
    """A server with the module, for all tests of the session; with pytest-xdist one for each worker."""
    program = pytestconfig.getini("lock_server_program")
    with Server(*pytestconfig.getini("lock_server_options"), server=program or None) as server:
        yield server


@pytest.fixture
def lock_server_url(lock_server: Server) -> str:
    """The server's URL. All keys and locks of earlier tests are gone."""
    lock_server.flush()
    return lock_server.url
