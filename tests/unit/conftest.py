"""A unit test opens no socket: one that does belongs in tests/integration, and `make check` stays fast without it."""

import pytest_socket


def pytest_runtest_setup() -> None:
    """Refuse sockets but those that an event loop has for itself; pytest-socket allows them again after the test."""
    pytest_socket.disable_socket(allow_unix_socket=True)
