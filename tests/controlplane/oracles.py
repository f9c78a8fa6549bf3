"""A part of Kubernetes' own code that answers questions over pipes, without a cluster around it."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self

from tests.controlplane import building

SECONDS_TO_END = 10.0


class OracleEnded(Exception):  # noqa: N818 named by what happened
    """The program ended while it was asked; the message is what it wrote to its standard error."""


class Oracle:
    """One running program, usable as a context manager. Questions are answered one after the other."""

    PROGRAM: ClassVar[str]
    """Its name among the programs that are built."""

    def __init__(self, command: Sequence[str]) -> None:
        # Once its standard input is closed it ends, so it cannot outlive this Python.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    @classmethod
    def of(cls, version: str) -> Self:
        """Start the program of a minor version of Kubernetes, building it if need be."""
        return cls(building.build(version).commands[cls.PROGRAM])

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise OracleEnded(self.stop())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> str:
        """End the program and return what it wrote to its standard error."""
        try:
            return self._process.communicate(timeout=SECONDS_TO_END)[1]
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.communicate()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.stop()
