"""Asks the device allocator that kube-scheduler has linked in, without a cluster around it.

A question is a record of the conformance corpus (its README lists the keys), the answer what such a record expects:
`outcome` (allocated, none or error; also timeout after five seconds, and panic), `fatal`, `error` and `results`, one
status.allocation per claim, each random share id written `<uuid>`.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tests.controlplane import building

SECONDS_TO_END = 10.0
KEYS = (
    "features",
    "allocator",
    "node",
    "classes",
    "slices",
    "claims",
    "allocated",
    "sharedDevices",
    "consumedCapacity",
)
"""What of a record is the question."""


class OracleEnded(Exception):  # noqa: N818 named by what happened
    """The program ended while it was asked; the message is what it wrote to its standard error."""


class Oracle:
    """One running allocator, usable as a context manager. Questions are answered one after the other."""

    def __init__(self, command: Sequence[str]) -> None:
        # Once its standard input is closed it ends, so it cannot outlive this Python.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    @classmethod
    def of(cls, version: str) -> Self:
        """Start the allocator of a minor version of Kubernetes, building it if need be."""
        return cls(building.build(version).commands["allocate"])

    def ask(self, record: Mapping[str, Any]) -> dict[str, Any]:
        question = json.dumps({key: record[key] for key in KEYS})
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(question + "\n")
            process.stdin.flush()
            answer: dict[str, Any] = json.loads(process.stdout.readline() or "{}")
        except BrokenPipeError:
            answer = {}
        if not answer:
            raise OracleEnded(self.stop())
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
