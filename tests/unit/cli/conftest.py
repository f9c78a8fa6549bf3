"""The whole program, as its script starts it."""

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from admission import cli


class Ended(NamedTuple):
    """How a command ended, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


Muster = Callable[..., Ended]


@pytest.fixture
def muster(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Muster:
    """Run `muster` with some words."""

    def start(*words: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["muster", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return Ended(int(ended.value.code or 0), *capsys.readouterr())

    return start
