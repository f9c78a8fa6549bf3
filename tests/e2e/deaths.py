"""Deaths of Muster and of the API server on a real control plane, and requests that outlive them."""

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException
from typing import Any, TypeVar

from tests.controlplane import ApiError
from tests.controlplane.fleet import Manifest
from tests.e2e.labs import Lab

T = TypeVar("T")

AWAY = (ApiError, OSError, HTTPException)
"""What a request raises while the API server is dead, or the webhook, without which no pod is created."""

SECONDS_AWAY = 90.0
SECONDS_TO_LEAD = 180.0
"""On a busy machine, and where the API server dies at the same time."""

STARTS = 5
SECONDS_BETWEEN_STARTS = 2.0
"""How often Muster is started in a row, which ends where the API server is away for some seconds."""

MOMENTS = ("claim:1", "claim:3", "protected:2", "protected:5", "gate:1", "gate:2", "gate:4")
"""Writes at which Muster kills itself, as `killing` knows them."""


@dataclass(slots=True, kw_only=True)
class Deaths:
    """Who kills Muster and the API server of a lab, and has them started again. counts: of what happened."""

    lab: Lab
    counts: Counter[str] = field(default_factory=Counter)
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _starting: "Future[Any] | None" = None
    _moments: list[str] = field(default_factory=list)

    def settle(self) -> None:
        """Wait until Muster leads, and will not kill itself any more."""
        self._moments.clear()
        self.keep_muster_up()
        if self._starting is not None:
            self._starting.result()
            self._starting = None
        if self.lab.muster.deadly:
            self.kill()
            self.settle()
        elif self.lab.muster.program.ended:
            self.settle()

    def keep_muster_up(self) -> None:
        """Have Muster started whenever it is dead; the start is not waited for."""
        if self._starting is not None:
            if not self._starting.done():
                return
            self._starting.result()
            self._starting = None
        if self.lab.muster.program.ended:
            moment = self._moments.pop(0) if self._moments else ""
            self.counts["deaths of Muster"] += 1
            self._starting = self._threads.submit(self._start, moment)

    def _start(self, killed_at: str) -> None:
        """Start Muster, and again where it has ended since the API server was away, as a kubelet does."""
        for left in reversed(range(STARTS)):
            try:
                self.lab.muster.start(killed_at=killed_at, within=SECONDS_TO_LEAD)
            except AssertionError:
                if not (left and self.lab.muster.some_ended):
                    raise
                self.lab.muster.end(hard=True)
                time.sleep(SECONDS_BETWEEN_STARTS)
            else:
                return

    def await_start(self) -> None:
        """Wait until Muster leads, if it is being started."""
        if self._starting is not None:
            self._starting.result()

    def kill(self) -> None:
        """Kill Muster (-9)."""
        self.await_start()
        self.lab.muster.end(hard=True)

    def kill_writing(self, which: int) -> None:
        """Kill Muster (-9), and its successors as they are about to make a write, chosen by any number."""
        self._moments += [MOMENTS[(which + at) % len(MOMENTS)] for at in range(2)]
        self.kill()

    def freeze(self) -> None:
        """Have Muster stand still until another leads, and go on without knowing of it."""
        self.await_start()
        if not self.lab.muster.program.ended:
            self._starting = self._threads.submit(self.lab.muster.overtake, within=SECONDS_TO_LEAD)

    def kill_api_server(self) -> None:
        """Kill the API server (-9), and start it again."""
        self.lab.control_plane.restart_apiserver(hard=True)

    # Requests.

    def create(self, path: str, body: Manifest) -> None:
        """Create an object, however often that takes."""

        def create() -> None:
            try:
                self.lab.client.create(path, body)
            except ApiError as error:
                if error.code != HTTPStatus.CONFLICT:  # created before, though the answer was lost
                    raise

        self.insist(create)

    def insist(self, ask: Callable[[], T]) -> T:
        """Ask until the API server answers, and the webhook behind it."""
        deadline = time.monotonic() + SECONDS_AWAY
        while True:
            try:
                return ask()
            except AWAY as error:
                if time.monotonic() > deadline or (
                    isinstance(error, ApiError) and error.code < HTTPStatus.TOO_MANY_REQUESTS
                ):
                    raise
            self.keep_muster_up()
            time.sleep(0.2)
