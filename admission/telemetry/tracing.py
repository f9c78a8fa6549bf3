"""Traces (OpenTelemetry), from the review of a pod to the opening of its gate: the real `ports.Traces`.

A gang's trace is that of its first pod. The webhook writes the context of its review into the pod's annotation
`names.TRACE`, in the form of W3C Trace Context, and the cycle that admits the gang continues it. The context is in an
annotation and not in memory, since webhook and controller are different processes, and a gang that waits for days may
outlive both. A user who writes another context there joins their own trace, and affects no decision.

The libraries are an extra (`muster-admission[otel]`), and are imported only if tracing is on.
"""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import admission
from admission.api.kubernetes.admission_review import Review, Verdict
from admission.api.values import names
from admission.errors import FixError
from admission.workloads.gangs import Group

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Link, Span, Tracer

Judge = Callable[[Review], Verdict]

TRACES_PATH = "/v1/traces"
"""The path of traces (OTLP/HTTP) below a collector's URL."""

MOST_LINKS = 32
"""Most links from a gang's span to the reviews of its other pods."""

LAST_SECONDS = 5.0
"""How long an ending process waits to export its last spans."""

SHARED = ("plan", "commit")
"""Steps of a cycle that are also spans in the trace of every gang that it admits."""


@asynccontextmanager
async def exporting(endpoint: str | None, *, sampled: float, roles: Sequence[str]) -> AsyncIterator["Traces | None"]:
    """Export traces to a collector at that URL while the block runs, and flush them at its end. None: no tracing.

    sampled: the part of the traces that begin here; for others, the process that began the trace decides. Raises
    FixError when the libraries are not installed.
    """
    if endpoint is None:
        yield None
        return
    provider = await asyncio.to_thread(_provider, endpoint, sampled, ",".join(roles))
    try:
        yield Traces(provider)
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                await asyncio.to_thread(provider.shutdown)


def _provider(endpoint: str, sampled: float, roles: str) -> "TracerProvider":
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased  # noqa: PLC0415
    except ImportError as error:
        raise FixError(
            "settings: tracing.endpoint is set and OpenTelemetry is not installed: install Muster"
            " with its extra otel, as docs/install.md tells"
        ) from error
    resource = Resource.create(
        {
            "service.name": "muster",
            "service.version": admission.__version__,
            "service.instance.id": f"{socket.gethostname()}-{os.getpid()}",
            "muster.roles": roles,
        }
    )
    provider = TracerProvider(
        resource=resource, sampler=ParentBased(TraceIdRatioBased(sampled)), shutdown_on_exit=False
    )
    exporter = OTLPSpanExporter(endpoint=endpoint.rstrip("/") + TRACES_PATH)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


@dataclass(slots=True)
class _Cycle:
    """The running cycle.

    steps: its finished steps, with begin and end in nanoseconds since 1970. gangs: the spans of the admitted gangs, by
    the UIDs of the gangs and of their pods.
    """

    span: "Span"
    context: "Context"
    began: int
    steps: list[tuple[str, int, int]] = field(default_factory=list)
    gangs: dict[str, tuple["Span", "Context"]] = field(default_factory=dict)


class Traces:
    """Creates the spans of one process. A process runs one cycle at a time."""

    def __init__(self, provider: "TracerProvider") -> None:
        from opentelemetry import trace  # noqa: PLC0415
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        self._api = trace
        self._propagator = TraceContextTextMapPropagator()
        self._tracer: Tracer = provider.get_tracer("muster", admission.__version__)
        self._cycle: _Cycle | None = None

    # The webhook.

    @contextmanager
    def review(self, webhook: str, parent: str, judge: Judge) -> Iterator[Judge]:
        """Trace a review; yield a judge that sets the trace context of the review. parent: header `traceparent`."""
        with self._span(f"review {webhook}", self._context(parent)) as span:
            carrier: dict[str, str] = {}
            self._propagator.inject(carrier, self._api.set_span_in_context(span))

            def traced(review: Review) -> Verdict:
                span.set_attributes(_review_attributes(review))
                verdict = judge(replace(review, trace=carrier.get("traceparent", "")))
                reason = verdict.denial.reason if verdict.denial is not None else ""
                span.set_attributes({"muster.allowed": verdict.denial is None, "muster.reason": reason})
                return verdict

            yield traced

    # The leader.

    @contextmanager
    def cycle(self) -> Iterator[None]:
        """Trace a cycle, and the gangs that it admits."""
        with self._span("cycle", self._context("")) as span:
            self._cycle = _Cycle(span, self._api.set_span_in_context(span), time.time_ns())
            try:
                yield
            finally:
                for gang, _ in {id(pair[0]): pair for pair in self._cycle.gangs.values()}.values():
                    gang.end()
                self._cycle = None

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Trace a step of the cycle."""
        cycle = self._cycle
        if cycle is None:
            yield
            return
        began = time.time_ns()
        with self._span(name, cycle.context):
            yield
        cycle.steps.append((name, began, time.time_ns()))

    def begin(self, gang: Group) -> None:
        """Begin the span of a gang's admission, in the trace of its first pod."""
        cycle = self._cycle
        if cycle is None or gang.uid in cycle.gangs:
            return
        contexts = [pod.meta.annotations.get(names.TRACE, "") for pod in gang.pods]
        parent, others = next(filter(None, contexts), ""), {context for context in contexts if context}
        shared = [step for step in cycle.steps if step[0] in SHARED]
        span = self._tracer.start_span(
            "admit gang",
            self._context(parent),
            links=[self._link(cycle.context), *map(self._link_to, sorted(others - {parent})[:MOST_LINKS])],
            attributes={"muster.gang": gang.key, "muster.gang_uid": gang.uid, "muster.queue": gang.queue},
            start_time=shared[0][1] if shared else None,
        )
        pair = span, self._api.set_span_in_context(span)
        for uid in (gang.uid, *(pod.meta.uid for pod in gang.pods)):
            cycle.gangs[uid] = pair
        for name, began, ended in shared:
            self._tracer.start_span(name, pair[1], start_time=began).end(ended)

    @contextmanager
    def write(self, name: str, uid: str, key: str) -> Iterator[None]:
        """Trace a write for a gang. uid: of the gang or a pod; key: `namespace/name` of the written object."""
        cycle = self._cycle
        if cycle is None:
            yield
            return
        _, context = cycle.gangs.get(uid, (cycle.span, cycle.context))
        with self._span(name, context, attributes={"muster.object": key}):
            yield

    @contextmanager
    def _span(self, name: str, context: "Context", **options: Any) -> Iterator["Span"]:
        """Trace a block. Its context is passed explicitly, since many blocks run concurrently in one thread."""
        span = self._tracer.start_span(name, context, **options)
        try:
            yield span
        except BaseException as error:
            span.record_exception(error)
            span.set_status(self._api.StatusCode.ERROR, type(error).__name__)
            raise
        finally:
            span.end()

    def _context(self, parent: str) -> "Context":
        """Return the context of a `traceparent`; an empty one, which begins a trace, if it is absent or invalid."""
        from opentelemetry.context import Context  # noqa: PLC0415

        return self._propagator.extract({"traceparent": parent} if parent else {}, Context())

    def _link(self, context: "Context") -> "Link":
        return self._api.Link(self._api.get_current_span(context).get_span_context())

    def _link_to(self, parent: str) -> "Link":
        return self._link(self._context(parent))


def _review_attributes(review: Review) -> dict[str, str | bool]:
    """Return the attributes that identify a review. Of the object's content, only the UID of its controller."""
    return {
        "muster.review_uid": review.uid,
        "muster.resource": review.resource,
        "muster.operation": review.operation,
        "muster.namespace": review.namespace,
        "muster.gang_uid": review.controller_uid,
        "muster.dry_run": review.dry_run,
    }
