"""A collector of OpenTelemetry that keeps what it is sent: OTLP over HTTP, on a port of this machine, in a thread."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span that was sent. Ids are hexadecimal; a parent of "" began the trace. Times: nanoseconds since 1970."""

    name: str
    trace: str
    id: str
    parent: str
    began: int
    ended: int
    attributes: Mapping[str, str | bool]
    links: tuple[str, ...]
    failed: bool
    service: str

    @classmethod
    def of(cls, sent: Sent, service: str) -> Self:
        return cls(
            name=sent.name,
            trace=sent.trace_id.hex(),
            id=sent.span_id.hex(),
            parent=sent.parent_span_id.hex(),
            began=sent.start_time_unix_nano,
            ended=sent.end_time_unix_nano,
            attributes={
                one.key: one.value.bool_value if one.value.HasField("bool_value") else one.value.string_value
                for one in sent.attributes
            },
            links=tuple(link.span_id.hex() for link in sent.links),
            failed=sent.status.code == 2,
            service=service,
        )


@dataclass(slots=True)
class Collector:
    """Use as a context."""

    spans: list[Span] = field(default_factory=list)
    port: int = 0
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _thread: threading.Thread | None = None
    _runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def named(self, name: str) -> list[Span]:
        return [span for span in list(self.spans) if span.name == name]

    def __enter__(self) -> Self:
        self._loop.run_until_complete(self._start())
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._thread is not None
        assert self._runner is not None
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        app = web.Application()
        app.router.add_post("/v1/traces", self._take)
        self._runner = web.AppRunner(app, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = int(self._runner.addresses[0][1])

    async def _take(self, request: web.Request) -> web.Response:
        sent = ExportTraceServiceRequest.FromString(await request.read())
        for part in sent.resource_spans:
            known = {one.key: one.value.string_value for one in part.resource.attributes}
            self.spans += [Span.of(span, known["service.name"]) for scope in part.scope_spans for span in scope.spans]
        body = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=body, content_type="application/x-protobuf")


def collector(*, scope: Literal["module", "function"] = "function") -> Callable[..., Any]:
    """Return a fixture with a collector that runs, for a module to assign to its name."""

    @pytest.fixture(scope=scope)
    def collector() -> Iterator[Collector]:
        with Collector() as running:
            yield running

    return collector
