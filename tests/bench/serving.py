"""One server in a process of its own: `python -m tests.bench.serving muster|plain|allowing asyncio|uvloop PORT`.

`plain` is aiohttp alone: over TLS, too, it reads the body and answers a constant AdmissionReview of the same size.
`allowing` is one that an API server can ask: it reads the request's UID, and lets everything pass as it is. Each
prints one JSON object when it listens: port, and the authority to trust; it stops when its standard input ends. Those
that are given the same port share the connections that come to it.
"""

import asyncio
import gc
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import uvloop
from aiohttp import web

from admission.api.kubernetes import admission_review
from admission.podpolicy.admission import Rules
from admission.review import reviewer
from admission.telemetry.metrics import Metrics
from admission.webhook import body_reader, handler, server
from admission.webhook.handler import Judge
from admission.webhook.tls import certificate as tls_certificate
from tests.bench import cluster

HOST = "127.0.0.1"
ENDPOINTS = ("mutate", "validate")
Handler = Callable[[web.Request], Awaitable[web.Response]]


def judges() -> dict[str, Judge]:
    """Wire the mutating and the validating webhook as `app` does, over a cluster that does not change."""
    view, rules = cluster.FrozenView(cluster.snapshot()), Rules(controller=cluster.CONTROLLER)
    caches = reviewer.warm_caches(view.snapshot())
    return {
        "mutate": lambda review: reviewer.mutate(review, view, caches=caches),
        "validate": lambda review: reviewer.validate(review, view, rules=rules, caches=caches),
    }


def answer_of(endpoint: str) -> bytes:
    """Return what Muster answers, for the plain server to repeat."""
    review = admission_review.decode(cluster.reviews(endpoint)[0])
    return handler.encode(review.uid, judges()[endpoint](review))


@asynccontextmanager
async def muster(certificate: tls_certificate.Certificate, port: int) -> AsyncIterator[int]:
    """Serve the webhook as it is in production, metrics and all."""
    metrics = Metrics()
    both = judges()
    handlers = server.Handlers(
        mutate=both["mutate"], validate=both["validate"], metrics=metrics.render, observe=metrics.record_review
    )
    settings = server.Settings(host=HOST, port=port, shared=True, linger=timedelta(0), drain=timedelta(seconds=1))
    async with server.serving(settings, handlers, certificate) as running:
        yield running.port


@asynccontextmanager
async def plain(certificate: tls_certificate.Certificate, port: int) -> AsyncIterator[int]:
    """Serve as little as possible."""
    async with _bare({endpoint: _constant(answer_of(endpoint)) for endpoint in ENDPOINTS}, certificate, port) as heard:
        yield heard


@asynccontextmanager
async def allowing(certificate: tls_certificate.Certificate, port: int) -> AsyncIterator[int]:
    """Serve as little as an API server accepts."""
    async with _bare(dict.fromkeys(ENDPOINTS, _allow), certificate, port) as heard:
        yield heard


@asynccontextmanager
async def _bare(
    handlers: dict[str, Handler], certificate: tls_certificate.Certificate, port: int
) -> AsyncIterator[int]:
    app = web.Application(client_max_size=body_reader.MAX_BODY)
    for path, answer in handlers.items():
        app.router.add_post(f"/{path}", answer)
    context = tls_certificate.server_context()
    await asyncio.to_thread(tls_certificate.load, context, certificate)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, HOST, port, ssl_context=context, reuse_port=True).start()
    yield int(runner.addresses[0][1])
    await runner.cleanup()


async def _allow(request: web.Request) -> web.Response:
    asked = await request.json()
    response = {"uid": asked["request"]["uid"], "allowed": True}
    return web.json_response({"apiVersion": asked["apiVersion"], "kind": asked["kind"], "response": response})


def _constant(answer: bytes) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=answer, content_type="application/json")

    return handler


async def _main(name: str, port: int) -> None:
    certificate = tls_certificate.self_made([HOST], now=datetime.now(UTC))
    serving = {"muster": muster, "plain": plain, "allowing": allowing}[name]
    async with serving(certificate, port) as heard:
        # As `app` does once the cluster is read: what lives as long as the process need not be looked through again.
        gc.collect()
        gc.freeze()
        sys.stdout.write(json.dumps({"port": heard, "authority": certificate.authority.decode()}) + "\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    NAME, LOOP, PORT = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if LOOP == "uvloop" else None) as runner_:
        runner_.run(_main(NAME, int(PORT)))
