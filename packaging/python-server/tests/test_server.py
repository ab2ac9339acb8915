"""The package as installed: the server starts with the module, ends, and says why it did not start."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest

import serverlock_server
from serverlock_server import Server, ServerFailed, ServerNotFound

pytest_plugins = ["pytester"]


def call(url: str, *words: str) -> str:
    """The first line of the reply to a command."""
    host, port = url.removeprefix("redis://").split(":")
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.sendall(" ".join(words).encode() + b"\r\n")
        return connection.makefile("r").readline().strip()


def test_a_server_has_the_module_and_ends_with_its_block():
    with Server() as server:
        assert call(server.url, "LOCK.ACQUIRE", "k", "EX", "60", "ID", "1").startswith(":")
    with pytest.raises(ConnectionError):
        call(server.url, "PING")
    server.stop()


def test_two_servers_have_their_own_ports():
    with Server() as one, Server() as other:
        call(one.url, "SET", "k", "v")
        assert call(other.url, "EXISTS", "k") == ":0"


def test_options_replace_the_defaults():
    with Server("--appendonly", "yes", "--databases", "3") as server:
        assert call(server.url, "SELECT", "3").startswith("-ERR")


def test_a_module_that_is_not_executable_is_loaded_from_a_copy(tmp_path, monkeypatch):
    module = tmp_path / "libredis_lock.so"
    module.write_bytes(serverlock_server.module_path().read_bytes())
    module.chmod(0o644)
    monkeypatch.setenv("REDIS_LOCK_MODULE", str(module))
    # Root may execute nothing that lacks the permission either.
    with Server() as server:
        assert call(server.url, "LOCK.HELP").startswith("*")


def test_a_server_that_fails_shows_its_log():
    with pytest.raises(ServerFailed, match="there-is-no-such-option"):
        Server("--there-is-no-such-option", "1")


def test_a_port_in_use_is_an_error_if_it_was_asked_for():
    with Server() as server, pytest.raises(ServerFailed, match=r"Address (already )?in use"):
        Server(port=server.port)


def test_a_missing_server_is_named(monkeypatch):
    monkeypatch.setenv("REDIS_SERVER", "no-such-server")
    with pytest.raises(ServerNotFound, match="no-such-server"):
        serverlock_server.find_server()
    monkeypatch.delenv("REDIS_SERVER")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ServerNotFound, match="valkey-server"):
        serverlock_server.find_server()


def test_the_command_line_prints_the_url_and_becomes_the_server():
    command = [sys.executable, "-m", "serverlock_server", "--databases", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        url = process.stdout.readline().strip()
        assert any("Ready to accept connections" in line for line in process.stdout)
        assert call(url, "LOCK.HELP").startswith("*")
        assert call(url, "SELECT", "3").startswith("-ERR")
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
    assert process.returncode == 0


def test_the_command_line_prints_the_path_of_the_module():
    command = [sys.executable, "-m", "serverlock_server", "--module"]
    path = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    assert os.access(path, os.X_OK)


def test_the_fixture_empties_the_database_between_tests(pytester):
    pytester.makeini("[pytest]\nlock_server_options = --databases 3")
    pytester.makepyfile(
        """
        import socket
        import pytest

        def call(url, *words):
            host, port = url.removeprefix("redis://").split(":")
            with socket.create_connection((host, int(port)), 60) as connection:
                connection.sendall(" ".join(words).encode() + b"\\r\\n")
                return connection.makefile("r").readline().strip()

        @pytest.mark.parametrize("turn", [1, 2])
        def test_it(lock_server_url, turn):
            assert call(lock_server_url, "LOCK.ACQUIRE", "k", "EX", "60", "ID", str(turn)).startswith(":")
            assert call(lock_server_url, "EXISTS", "k") == ":1"
            assert call(lock_server_url, "SELECT", "3").startswith("-ERR")
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)
