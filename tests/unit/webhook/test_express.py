"""The express lane: it answers what is usual, hands over what is not, and nobody can tell the two apart but by time."""

import asyncio
import gzip
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from admission.api import names
from admission.api.reviews import Review, Verdict
from admission.webhook import certificates, express, server
from admission.webhook.answering import Outcome
from admission.webhook.server import Handlers, Server, Settings
from tests.unit.webhook.cases import a_pod, held
from tests.unit.webhook.test_server import as_json, mutate, review_of, trusting, validate

pytestmark = pytest.mark.enable_socket

CERTIFICATE = certificates.self_made(["127.0.0.1"], now=datetime.now(UTC))
QUICK = Settings(
    host="127.0.0.1",
    port=0,
    linger=timedelta(0),
    drain=timedelta(seconds=5),
    read_timeout=timedelta(milliseconds=200),
)
BODY = as_json(review_of(a_pod(labels={names.QUEUE: "team-a"})))


@dataclass
class Wire:
    """A connection as bytes, and what the server made of it."""

    server: Server
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    observed: list[tuple[str, Outcome]]
    ordinary: list[asyncio.Protocol]
    """The connections that were handed over to aiohttp."""

    async def send(self, *parts: bytes) -> None:
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def response(self) -> tuple[int, dict[str, str], bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("ascii")
        status, *lines = head.strip().split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return int(status.split()[1]), fields, await self.reader.readexactly(int(fields.get("content-length", 0)))


@asynccontextmanager
async def connected(settings: Settings = QUICK, **handlers: Any) -> AsyncIterator[Wire]:
    observed: list[tuple[str, Outcome]] = []
    ordinary: list[asyncio.Protocol] = []
    given: dict[str, Any] = {
        "mutate": mutate,
        "validate": validate,
        "observe": lambda door, outcome, _seconds: observed.append((door, outcome)),
        **handlers,
    }
    with pytest.MonkeyPatch.context() as patched:
        make = server._ordinary

        def noted(runner: Any) -> asyncio.Protocol:
            ordinary.append(make(runner))
            return ordinary[-1]

        patched.setattr(server, "_ordinary", noted)
        async with server.serving(settings, Handlers(**given), CERTIFICATE) as running:
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=trusting(CERTIFICATE))
            try:
                yield Wire(running, reader, writer, observed, ordinary)
            finally:
                writer.close()


def request(
    *fields: str, body: bytes = BODY, line: str = "POST /mutate?timeout=5s HTTP/1.1", length: str | None = None
) -> bytes:
    usual = ["Host: 127.0.0.1", f"Content-Length: {length or len(body)}", "Content-Type: application/json"]
    head = "\r\n".join((line, *usual, *fields))
    return head.encode() + b"\r\n\r\n" + body


GO = ("User-Agent: kube-apiserver-admission", "Accept: application/json, */*", "Accept-Encoding: gzip")

USUAL = {
    "as the API server sends it": request(*GO),
    "without a query": request(line="POST /mutate HTTP/1.1"),
    "in lower case": request(*GO).replace(b"Content-", b"content-").replace(b"Host", b"host"),
    "with blanks around values": request(length=f"\t {len(BODY)} "),
    "with fields of tracing": request("traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
}


@pytest.mark.parametrize("sent", USUAL.values(), ids=USUAL)
@pytest.mark.parametrize("parts", [1, 2, 7, 100])
async def test_a_usual_request_is_answered_without_aiohttp(sent: bytes, parts: int) -> None:
    step = -(-len(sent) // parts)
    async with connected() as wire:
        for _ in range(3):
            await wire.send(*(sent[at : at + step] for at in range(0, len(sent), step)))
            status, fields, body = await wire.response()

            assert (status, fields["content-type"]) == (200, "application/json")
            assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", fields["date"])
            assert b'"patchType":"JSONPatch"' in body
            assert wire.server.under_way == 0

    assert wire.observed == [("mutate", Outcome.PATCHED)] * 3
    assert wire.ordinary == []


async def test_a_denial_is_usual() -> None:
    async with connected() as wire:
        await wire.send(request(body=as_json(review_of(held("nope"))), line="POST /validate HTTP/1.1"))
        status, _, body = await wire.response()

    assert (status, wire.observed, wire.ordinary) == (200, [("validate", Outcome.DENIED)], [])
    assert b"there is no queue nope" in body


CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
LONG = b" " * express.LONGEST_BODY

UNUSUAL: dict[str, tuple[bytes, int]] = {
    "a probe": (b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", 200),
    "another path": (request(line="POST /nowhere HTTP/1.1"), 404),
    "another method": (request(line="PUT /mutate HTTP/1.1"), 405),
    "another content type": (request().replace(b"application/json", b"application/yaml"), 415),
    "a charset": (request().replace(b"application/json", b"application/json; charset=utf-8"), 200),
    "chunks": (request("Transfer-Encoding: chunked", body=CHUNKED).replace(b"Content-Length", b"X-Length"), 200),
    "chunks and a length": (request("Transfer-Encoding: chunked", body=CHUNKED), 400),
    "two lengths": (request(f"Content-Length: {len(BODY)}"), 400),
    "two hosts": (request("Host: elsewhere"), 400),
    "a length that is no number": (request(length="+5"), 400),
    "a field that is folded": (request("X-A: b\r\n c"), 400),
    "a field without a name": (request(": b"), 400),
    "a blank before the colon": (request("X-A : b"), 400),
    "a control character": (request("X-A: a\0b"), 400),
    "a compressed body": (request("Content-Encoding: gzip", body=gzip.compress(BODY)), 200),
    "a wish to be told to go on": (request("Expect: 100-continue"), 100),
    "a last request": (request("Connection: close"), 200),
    "a long body": (request(body=BODY + LONG), 200),
    "no JSON": (request(body=b"{nope"), 400),
    "no body": (request(body=b""), 400),
    "a long head": (request("X-Long: " + "a" * express.LONGEST_HEAD), 200),
    "HTTP/1.0": (request(line="POST /mutate HTTP/1.0"), 200),
}


@pytest.mark.parametrize(("sent", "expected"), UNUSUAL.values(), ids=UNUSUAL)
async def test_an_unusual_request_is_handed_over(sent: bytes, expected: int) -> None:
    async with connected() as wire:
        await wire.send(sent)
        status, _, _ = await wire.response()

        assert status == expected
        assert len(wire.ordinary) == 1


async def test_after_an_unusual_request_the_connection_goes_on() -> None:
    async with connected() as wire:
        for sent in (request(), UNUSUAL["a probe"][0], request(), request()):
            await wire.send(sent)
            assert (await wire.response())[0] == 200

    assert wire.observed == [("mutate", Outcome.PATCHED)] * 3
    assert len(wire.ordinary) == 1


async def test_requests_that_are_sent_ahead_are_answered_in_their_order() -> None:
    denied = request(body=as_json(review_of(held("nope"))), line="POST /validate HTTP/1.1")
    async with connected() as wire:
        await wire.send(request() + denied + request()[:50])
        first, second = await wire.response(), await wire.response()
        await wire.send(request()[50:])
        third = await wire.response()

    assert [b'"allowed":true' in body for _, _, body in (first, second, third)] == [True, False, True]


async def test_a_fault_of_our_own_is_told_by_its_id_and_counted_once() -> None:
    def fails(_review: Review) -> Verdict:
        raise RuntimeError("what nobody may see")

    with capture_logs() as logged:
        async with connected(mutate=fails) as wire:
            await wire.send(request())
            status, _, body = await wire.response()

    [entry] = [entry for entry in logged if entry["log_level"] == "error"]
    assert status == 500
    assert entry["error_id"].encode() in body
    assert wire.observed == [("mutate", Outcome.FAILED)]


async def test_a_request_that_stays_half_is_handed_over_and_refused_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(express, "HOLD_SECONDS", 0.01)
    monkeypatch.setattr(express, "SETTLE_SECONDS", 0.01)
    async with connected() as wire:
        await wire.send(request()[:-10])
        status, _, _ = await wire.response()

        assert status == 408
        assert len(wire.ordinary) == 1
        assert wire.server.under_way == 0


async def test_a_request_that_comes_slowly_is_answered_though_the_server_is_stopping() -> None:
    stack = server.serving(QUICK, Handlers(mutate=mutate, validate=validate), CERTIFICATE)
    running = await stack.__aenter__()
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=trusting(CERTIFICATE))
    wire = Wire(running, reader, writer, [], [])
    await wire.send(request()[:-10])
    async with asyncio.timeout(5):
        while not running.under_way:  # noqa: ASYNC110 - what is waited for is in the kernel
            await asyncio.sleep(0.001)
    stopping = asyncio.create_task(stack.__aexit__(None, None, None))
    async with asyncio.timeout(5):
        while not running.draining:  # noqa: ASYNC110 - a property
            await asyncio.sleep(0)

    await wire.send(request()[-10:])
    status, fields, _ = await wire.response()
    await stopping

    assert (status, fields["connection"]) == (200, "close")
    assert await reader.read() == b""
    writer.close()


async def test_a_client_that_goes_away_in_the_middle_leaves_nothing_behind() -> None:
    async with connected() as wire:
        await wire.send(request()[:-10])
        async with asyncio.timeout(5):
            while not wire.server.under_way:  # noqa: ASYNC110 - what is waited for is in the kernel
                await asyncio.sleep(0.001)
        wire.writer.transport.abort()
        async with asyncio.timeout(5):
            while wire.server.under_way:  # noqa: ASYNC110 - the same
                await asyncio.sleep(0.001)


async def test_when_too_many_are_under_way_a_request_is_handed_over_to_be_refused() -> None:
    async with connected(replace(QUICK, reviews=1)) as wire:
        wire.server.begin_review()
        await wire.send(request())
        status, fields, _ = await wire.response()
        wire.server.end_review()

    assert (status, fields["retry-after"]) == (429, "1")
    assert wire.observed == [("mutate", Outcome.SHED)]


def mutated(seed: int) -> bytes:
    """Return a usual request with some bytes changed, taken out or doubled, more of them in its head."""
    chance = random.Random(seed)  # noqa: S311 - it guards nothing
    sent = bytearray(request(*GO))
    head = sent.index(b"\r\n\r\n") + 4
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(head if chance.random() < 0.8 else len(sent))
        match chance.randrange(4):
            case 0:
                sent[at] = chance.choice(b"\r\n\t :\0\xff,;0a")
            case 1:
                del sent[at : at + chance.randint(1, 4)]
            case 2:
                sent[at:at] = sent[at : at + chance.randint(1, 20)]
            case _:
                sent[at:at] = chance.choice((b"\r\n", b"Expect: 100-continue\r\n", b"Content-Length: 3\r\n", b" "))
    return bytes(sent)


async def outcome(wire: Wire, sent: bytes) -> tuple[int, bytes] | None:
    """Send, and return status and body; None when the server says nothing more than good-bye."""
    await wire.send(sent)
    try:
        async with asyncio.timeout(5):
            status, fields, body = await wire.response()
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    # What aiohttp says of its own about bad requests has no length that is worth comparing.
    return status, body if fields.get("content-type", "").startswith("application/json") else b""


@pytest.mark.parametrize("seed", range(150))
async def test_a_mangled_request_is_answered_as_aiohttp_alone_would(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(express, "HOLD_SECONDS", 0.01)
    monkeypatch.setattr(express, "SETTLE_SECONDS", 0.01)
    quick = replace(QUICK, read_timeout=timedelta(milliseconds=20))
    async with connected(quick) as wire:
        mixed = await outcome(wire, mutated(seed))
    with monkeypatch.context() as patched:
        patched.setattr(express, "frame", lambda _: "unusual")
        async with connected(quick) as wire:
            alone = await outcome(wire, mutated(seed))

    assert mixed == alone
