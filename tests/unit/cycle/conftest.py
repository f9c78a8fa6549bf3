"""Cycles without a thread: each of their many steps aside would cost the test about a millisecond of waiting."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import pytest

from admission.cycle.executor import BackgroundExecutor

P = ParamSpec("P")
T = TypeVar("T")


@pytest.fixture
def thread() -> None:
    """Have a test run with the real executor."""


@pytest.fixture(autouse=True)
def no_thread(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run inline what a cycle computes. Tests that ask for `thread`, and all integration tests, have the executor."""

    async def run(_self: BackgroundExecutor, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return call(*args, **kwargs)

    if "thread" not in request.fixturenames and request.path.stem != "test_executor":
        monkeypatch.setattr(BackgroundExecutor, "run", run)
