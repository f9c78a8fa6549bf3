"""When each pod of a namespace was created, let in, bound, started and ended: seen by one watch, in one thread."""

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec

from tests.controlplane.namespaces import Namespace

STEPS = ("created", "ungated", "bound", "running", "ended")


class _Meta(msgspec.Struct):
    name: str = ""
    version: str = msgspec.field(default="", name="resourceVersion")


class _Spec(msgspec.Struct):
    node: str = msgspec.field(default="", name="nodeName")
    gates: list[Any] = msgspec.field(default_factory=list, name="schedulingGates")


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Event(msgspec.Struct):
    type: str
    object: _Pod


_DECODER = msgspec.json.Decoder(_Event)


@dataclass(slots=True)
class ObservedObjects:
    """Use as a context. times: by step and pod, the monotonic second when the watch first showed it.

    A busy API server ends a watch whose reader is slow; it is begun again where it ended. broken: why it cannot be.
    """

    namespace: Namespace
    times: dict[str, dict[str, float]] = field(default_factory=lambda: {step: {} for step in STEPS})
    broken: str = ""
    _version: str = ""
    _over: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _connection: http.client.HTTPSConnection | None = None
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._version = self.namespace.client.get(self.namespace.pods)["metadata"]["resourceVersion"]
        answer = self._watch()
        self._thread = threading.Thread(target=self._follow, args=(answer,))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._thread is not None
        with self._changed:
            self._over = True
            if self._connection is not None and self._connection.sock is not None:
                self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def wait(self, step: str, pods: int, *, within: float) -> float:
        """Wait until so many pods have come to a step; return when the last of them did."""
        with self._changed:
            done = self._changed.wait_for(lambda: self.broken or len(self.times[step]) >= pods, within)
            done = done and not self.broken
            seen = {name: len(times) for name, times in self.times.items()}
        assert done, f"{pods} pods {step}: not seen within {within:g} s; seen: {seen}; {self.broken}"
        return max(self.times[step].values())

    def between(self, first: str, second: str) -> list[float]:
        """Return the seconds from one step to another of every pod that has come to both, the shortest first."""
        begun, ended = self.times[first], self.times[second]
        return sorted(ended[pod] - begun[pod] for pod in begun.keys() & ended.keys())

    def _watch(self) -> http.client.HTTPResponse:
        client = self.namespace.client
        url = urlsplit(client.server)
        connection = http.client.HTTPSConnection(str(url.hostname), url.port, context=client.tls)
        path = f"{self.namespace.pods}?watch=true&timeoutSeconds=3600&resourceVersion={self._version}"
        connection.request("GET", path, headers={"Authorization": f"Bearer {client.token}"})
        self._connection = connection
        return connection.getresponse()

    def _follow(self, answer: http.client.HTTPResponse) -> None:
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException), answer:
                for line in answer:
                    self._take(line)
            with self._changed:
                assert self._connection is not None
                self._connection.close()
                if self._over or self.broken:
                    return
                answer = self._watch()

    def _take(self, line: bytes) -> None:
        try:
            event = _DECODER.decode(line)
        except ValueError:
            with self._changed:
                self.broken = f"the watch says {line[:500]!r}"
                self._changed.notify_all()
        else:
            self._version = event.object.metadata.version
            self._note(event, time.monotonic())

    def _note(self, event: _Event, now: float) -> None:
        pod = event.object
        if event.type not in ("ADDED", "MODIFIED"):
            return
        steps: Mapping[str, bool] = {
            "created": True,
            "ungated": not pod.spec.gates,
            "bound": bool(pod.spec.node),
            "running": pod.status.phase in ("Running", "Succeeded"),
            "ended": pod.status.phase == "Succeeded",
        }
        with self._changed:
            for step, reached in steps.items():
                if reached:
                    self.times[step].setdefault(pod.metadata.name, now)
            self._changed.notify_all()
