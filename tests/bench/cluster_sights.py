"""When each pod of a namespace was created, let in, bound, started and ended: seen by one watch, in one thread."""

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
class Sights:
    """Use as a context. times: by step and pod, the monotonic second when the watch first showed it."""

    namespace: Namespace
    times: dict[str, dict[str, float]] = field(default_factory=lambda: {step: {} for step in STEPS})
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _connection: http.client.HTTPSConnection | None = None
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        client = self.namespace.client
        version = client.get(self.namespace.pods)["metadata"]["resourceVersion"]
        url = urlsplit(client.server)
        self._connection = http.client.HTTPSConnection(str(url.hostname), url.port, context=client.tls)
        path = f"{self.namespace.pods}?watch=true&timeoutSeconds=3600&resourceVersion={version}"
        self._connection.request("GET", path, headers={"Authorization": f"Bearer {client.token}"})
        answer = self._connection.getresponse()
        self._thread = threading.Thread(target=self._follow, args=(answer,))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._connection is not None
        assert self._thread is not None
        if self._connection.sock is not None:
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._connection.close()

    def wait(self, step: str, pods: int, *, within: float) -> float:
        """Wait until so many pods have come to a step; return when the last of them did."""
        with self._changed:
            done = self._changed.wait_for(lambda: len(self.times[step]) >= pods, within)
            seen = {name: len(times) for name, times in self.times.items()}
        assert done, f"{pods} pods {step}: not seen within {within:g} s; seen: {seen}"
        return max(self.times[step].values())

    def between(self, first: str, second: str) -> list[float]:
        """Return the seconds from one step to another of every pod that has come to both, the shortest first."""
        begun, ended = self.times[first], self.times[second]
        return sorted(ended[pod] - begun[pod] for pod in begun.keys() & ended.keys())

    def _follow(self, answer: http.client.HTTPResponse) -> None:
        try:
            for line in answer:
                self._note(_DECODER.decode(line), time.monotonic())
        except (OSError, ValueError, http.client.HTTPException):
            return  # the connection was shut by the end of the context

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
