"""The webhook over TLS, as an API server reaches it."""

import asyncio
import io
import json
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from admission.api.kubernetes.admission_review import ALLOWED, Review, Verdict
from admission.api.values import names
from admission.errors import FixError, RetryError
from admission.webhook import handler, listener, server
from admission.webhook.body_reader import MAX_BODY
from admission.webhook.handler import Outcome
from admission.webhook.known_paths import KnownPaths
from admission.webhook.refusals import Refusal
from admission.webhook.server import Handlers, Server, Settings
from admission.webhook.tls import certificate
from tests.controlplane.processes import FreePorts
from tests.property import hostile_reviews
from tests.unit.webhook.cases import a_pod, held, mutate, validate
from tests.unit.webhook.waiting import until

CERTIFICATE = certificate.self_made(["localhost", "127.0.0.1"], now=datetime.now(UTC))
QUICK = Settings(
    host="127.0.0.1", port=0, linger=timedelta(0), drain=timedelta(seconds=5), read_timeout=timedelta(seconds=5)
)


@dataclass
class Client:
    """A client that trusts the webhook's authority alone, and what the server told its observer."""

    server: Server
    session: aiohttp.ClientSession
    observed: list[tuple[str, Outcome]] = field(default_factory=list)

    async def post(self, path: str, body: Any, content_type: str = "application/json", **rest: Any) -> tuple[int, Any]:
        headers = {"Content-Type": content_type, **rest.pop("headers", {})}
        # aiohttp warns of large bodies unless they are files.
        data = body if hasattr(body, "__aiter__") else io.BytesIO(body if isinstance(body, bytes) else as_json(body))
        async with self.session.post(self._url(path), data=data, headers=headers, **rest) as response:
            return response.status, json.loads(await response.read())

    @asynccontextmanager
    async def raw(self, host: str = "127.0.0.1") -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Connect from a host, and leave what is sent and read to the test."""
        opened = await asyncio.open_connection(
            "127.0.0.1", self.server.port, ssl=trusting(CERTIFICATE), local_addr=(host, 0)
        )
        try:
            yield opened
        finally:
            opened[1].transport.abort()

    async def get(self, path: str, *, plain: bool = False) -> tuple[int, str]:
        async with self.session.get(self._url(path, plain=plain)) as response:
            return response.status, await response.text()

    def _url(self, path: str, *, plain: bool = False) -> str:
        scheme, port = ("http", self.server.plain_port) if plain else ("https", self.server.port)
        return f"{scheme}://127.0.0.1:{port}{path}"


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def trusting(certificate: certificate.Certificate) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=certificate.authority.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


@asynccontextmanager
async def serving(
    settings: Settings = QUICK, *, paths: KnownPaths | None = None, **handlers: Any
) -> AsyncIterator[Client]:
    observed: list[tuple[str, Outcome]] = []
    given: dict[str, Any] = {
        "mutate": mutate,
        "validate": validate,
        "observe": lambda endpoint, outcome, _seconds, _reason: observed.append((endpoint, outcome)),
        **handlers,
    }
    async with server.serving(settings, Handlers(**given), CERTIFICATE, paths) as running:
        connector = aiohttp.TCPConnector(ssl=trusting(CERTIFICATE))
        async with aiohttp.ClientSession(connector=connector) as session:
            yield Client(running, session, observed)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with serving() as running:
        yield running


def review_of(pod: Any, *, operation: str = "CREATE", **request: Any) -> dict[str, Any]:
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "0df28fbd-5f5f-11e8-bc74-36e6bb280816",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "ml",
            "operation": operation,
            "userInfo": {"username": "alice"},
            "object": pod,
            **request,
        },
    }


async def test_a_pod_is_mutated_over_tls(client: Client) -> None:
    status, answer = await client.post("/mutate", review_of(a_pod(labels={names.QUEUE: "team-a"})))

    assert status == 200
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = answer["response"]
    assert response["uid"] == "0df28fbd-5f5f-11e8-bc74-36e6bb280816"
    assert response["allowed"] is True
    assert response["patchType"] == "JSONPatch"
    assert client.observed == [("mutate", Outcome.PATCHED)]


async def test_a_pod_is_refused_in_words(client: Client) -> None:
    status, answer = await client.post("/validate", review_of(held("nope")))

    assert status == 200
    assert answer["response"]["allowed"] is False
    assert answer["response"]["status"]["code"] == 403
    assert answer["response"]["status"]["message"].startswith("muster: UnknownQueue: there is no queue nope")
    assert client.observed == [("validate", Outcome.DENIED)]


async def test_a_refusal_is_a_single_log_line(client: Client) -> None:
    pod = held("nope")
    pod["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "train", "uid": "job-1", "controller": True}]

    with capture_logs() as logged:
        await client.post("/validate", review_of(pod))
        await client.post("/mutate", review_of(a_pod(labels={names.QUEUE: "team-a"})))

    (line,) = logged
    assert line.items() >= {"event": "refused", "reason": "UnknownQueue", "user": "alice", "gang_uid": "job-1"}.items()
    assert line["message"].startswith("there is no queue nope")


async def test_a_pod_of_no_queue_is_let_through(client: Client) -> None:
    _, answer = await client.post("/mutate", review_of(a_pod()))

    assert answer["response"] == {"uid": answer["response"]["uid"], "allowed": True}
    assert client.observed == [("mutate", Outcome.ALLOWED)]


async def test_a_client_that_does_not_trust_the_authority_is_not_served(client: Client) -> None:
    other = certificate.self_made(["127.0.0.1"], now=datetime.now(UTC))

    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await client.post("/mutate", review_of(a_pod()), ssl=trusting(other))


async def test_tls_1_1_is_refused(client: Client) -> None:
    context = trusting(CERTIFICATE)
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1

    with pytest.raises(aiohttp.ClientConnectorError):
        await client.post("/mutate", review_of(a_pod()), ssl=context)


def without(key: str) -> dict[str, Any]:
    review = review_of(a_pod())
    del review["request"][key]
    return review


NOT_REVIEWS: dict[str, tuple[Any, str]] = {
    "no JSON": (b"{nope", "is not JSON"),
    "nothing": (b"", "is not JSON"),
    "not UTF-8": (b'"\xff"', "is not JSON"),
    "JSON nested too deep": (b"[" * 200_000, "is not JSON"),
    "a number of too many digits": (b"1" * 10_000 + b"x", "is not JSON"),
    "a list": ([], "an object is expected"),
    "null": (None, "is not an AdmissionReview"),
    "a review without a request": ({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}, "request.uid"),
    "a review without a uid": (without("uid"), "request.uid: is required"),
    "a uid that is no text": (review_of(a_pod(), uid=7), "request.uid"),
    "a request that is a list": ({**review_of(a_pod()), "request": []}, "request"),
}


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize(("body", "words"), NOT_REVIEWS.values(), ids=NOT_REVIEWS)
async def test_a_body_that_is_no_review_is_a_bad_request(client: Client, path: str, body: Any, words: str) -> None:
    status, answer = await client.post(path, body)

    assert status == 400
    assert (answer["kind"], answer["status"], answer["code"]) == ("Status", "Failure", 400)
    assert words in answer["message"]
    assert len(answer["message"]) < 300
    assert client.observed == [(path[1:], Outcome.MALFORMED)]


MALFORMED: dict[str, tuple[Any, str]] = {
    "another version": ({**review_of(a_pod()), "apiVersion": "admission.k8s.io/v1beta1"}, "is not an AdmissionReview"),
    "another kind": ({**review_of(a_pod()), "kind": "Pod"}, "is not an AdmissionReview"),
    "no resource": (without("resource"), "request.resource.resource: is required"),
    "no operation": (without("operation"), "request.operation: is required"),
    "an object that is none": (review_of("pod"), "request.object"),
    "no object": (without("object"), "Expected `object`, got `null`"),
    "user groups that are no texts": (review_of(a_pod(), userInfo={"groups": [1]}), "request.userInfo.groups"),
    "another resource": (
        review_of(a_pod(), resource={"resource": "secrets", "version": "v1"}),
        "sent CREATE of secrets",
    ),
}


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize(("body", "words"), MALFORMED.values(), ids=MALFORMED)
async def test_where_the_uid_is_known_the_review_is_denied(client: Client, path: str, body: Any, words: str) -> None:
    status, answer = await client.post(path, body)

    assert status == 200
    assert answer["response"]["uid"] == "0df28fbd-5f5f-11e8-bc74-36e6bb280816"
    assert answer["response"]["allowed"] is False
    assert "MalformedRequest" in answer["response"]["status"]["message"]
    assert words in answer["response"]["status"]["message"]


@pytest.mark.parametrize("content_type", ["text/plain", "application/yaml", "application/octet-stream", ""])
async def test_other_content_types_are_not_read(client: Client, content_type: str) -> None:
    status, answer = await client.post("/mutate", review_of(a_pod()), content_type)

    assert (status, answer["reason"]) == (415, "UnsupportedMediaType")


async def test_a_charset_may_be_named(client: Client) -> None:
    status, _ = await client.post("/mutate", review_of(a_pod()), "application/json; charset=utf-8")

    assert status == 200


async def test_a_body_at_the_limit_is_read(client: Client) -> None:
    review = json.dumps(review_of(a_pod())).encode()

    status, _ = await client.post("/mutate", review + b" " * (MAX_BODY - len(review)))

    assert status == 200


async def test_a_body_with_a_content_length_above_the_limit_is_not_read(client: Client) -> None:
    status, answer = await client.post("/mutate", b" " * (MAX_BODY + 1))

    assert (status, answer["reason"]) == (413, "RequestEntityTooLarge")


async def test_a_body_that_grows_too_large_is_cut_off(client: Client) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(MAX_BODY // 65_536 + 1):
            yield b" " * 65_536

    status, answer = await client.post("/mutate", chunks())

    assert (status, answer["reason"]) == (413, "RequestEntityTooLarge")


@pytest.mark.parametrize("encoding", ["deflate", "gzip", "br", "zstd", "identity, gzip", "GZIP"])
async def test_a_compressed_body_is_refused_and_not_unpacked(encoding: str) -> None:
    bomb = zlib.compress(b" " * (MAX_BODY * 4))
    refused: list[Refusal] = []

    async with serving(refuse=refused.append) as client:
        status, answer = await client.post("/mutate", bomb, headers={"Content-Encoding": encoding})

    assert (status, answer["reason"]) == (415, "UnsupportedMediaType")
    assert "must not be compressed" in answer["message"]
    assert refused == [Refusal.ENCODING]


HEAD = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"

NO_HTTP = {
    "no HTTP": b"\x16\x03\x01 hello\r\n\r\n",
    "chunks that are none": HEAD + b"Transfer-Encoding: chunked\r\n\r\nno number\r\n",
    "two lengths": HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{",
    "a header that is too long": HEAD + b"X: " + b"x" * 5_000 + b"\r\n\r\n",
    "a request line that is too long": b"POST /" + b"x" * 3_000 + b" HTTP/1.1\r\n\r\n",
    "more headers than anybody needs": HEAD + b"X: x\r\n" * 40 + b"\r\n",
}


@pytest.mark.parametrize("sent", NO_HTTP.values(), ids=NO_HTTP)
async def test_what_is_no_http_is_refused_and_closed_without_a_line_in_the_log(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    refused: list[Refusal] = []
    async with serving(refuse=refused.append) as client, client.raw() as (reader, writer):
        writer.write(sent)

        assert (await reader.read()).split(b" ")[1] == b"400"

    assert refused == [Refusal.MALFORMED]
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_body_that_does_not_come_is_not_waited_for_long() -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(30)

    async with serving(
        Settings(host="127.0.0.1", port=0, linger=timedelta(0), read_timeout=timedelta(milliseconds=50))
    ) as client:
        status, answer = await client.post("/mutate", slow())

    assert (status, answer["reason"]) == (408, "Timeout")


async def test_a_client_that_disconnects_before_its_body_is_no_server_error(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """As an API server that is killed while it asks."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", client.server.port, ssl=context)
    writer.write(b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{")
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.transport.abort()
    await asyncio.sleep(0.05)

    status, _ = await client.post("/mutate", review_of(a_pod()))
    assert status == 200
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


async def test_an_unknown_path_is_not_found(client: Client) -> None:
    status, answer = await client.post("/convert", review_of(a_pod()))

    assert (status, answer["kind"], answer["reason"]) == (404, "Status", "NotFound")


async def test_a_wrong_method_is_refused_with_the_allowed_methods(client: Client) -> None:
    async with client.session.get(f"https://127.0.0.1:{client.server.port}/mutate") as response:
        assert response.status == 405
        assert response.headers["Allow"] == "POST"
        assert (await response.json())["reason"] == "MethodNotAllowed"


async def test_a_fault_of_our_own_shows_an_id_and_no_more() -> None:
    def fails(_review: Review) -> Verdict:
        secret = "what nobody may see"
        raise RuntimeError(secret)

    with capture_logs() as logged:
        async with serving(mutate=fails) as client:
            status, answer = await client.post("/mutate", review_of(a_pod()))

    assert status == 500
    (entry,) = [entry for entry in logged if entry["log_level"] == "error"]
    assert entry["error_id"] in answer["message"]
    assert isinstance(entry["exc_info"], RuntimeError)
    assert "nobody" not in json.dumps(answer)
    assert "Traceback" not in json.dumps(answer)
    assert client.observed == [("mutate", Outcome.FAILED)]


async def test_a_fault_of_a_probe_shows_an_id_and_no_more() -> None:
    def fails(*_: object) -> Any:
        raise RuntimeError("what nobody may see")

    async with serving(metrics=fails) as client:
        status, text = await client.get("/metrics")

    assert status == 500
    assert "internal error" in text
    assert "nobody" not in text


async def test_while_nothing_is_known_the_failure_policy_decides() -> None:
    def unready(_review: Review) -> Verdict:
        raise RetryError("the cluster's objects are not all read yet")

    async with serving(validate=unready) as client:
        status, answer = await client.post("/validate", review_of(a_pod()))

    assert (status, answer["reason"]) == (503, "ServiceUnavailable")
    assert "not all read yet" in answer["message"]
    assert client.observed == [("validate", Outcome.UNREADY)]


async def test_probes_are_answered_over_tls(client: Client) -> None:
    assert await client.get("/healthz") == (200, "ok\n")
    assert await client.get("/readyz") == (200, "ok\n")
    assert (await client.get("/metrics"))[0] == 200


async def test_an_unready_server_lists_the_kinds_that_the_server_waits_for() -> None:
    async with serving(waiting_for=lambda: ("pods", "queues")) as client:
        assert await client.get("/healthz") == (200, "ok\n")
        assert await client.get("/readyz") == (503, "waiting: pods\nwaiting: queues\n")


async def test_metrics_may_have_a_port_of_their_own() -> None:
    settings = Settings(host="127.0.0.1", port=0, plain_port=0, linger=timedelta(0))

    async with serving(settings, metrics=lambda *_: (b"muster 1\n", "text/plain; version=1.0.0")) as client:
        assert await client.get("/metrics", plain=True) == (200, "muster 1\n")
        assert (await client.get("/readyz", plain=True))[0] == 200
        assert (await client.get("/metrics"))[0] == 404
        assert client.server.plain_port != client.server.port


async def test_a_probe_server_serves_probes_and_no_reviews() -> None:
    with FreePorts() as ports:
        port = ports.pick()
    settings = Settings(plain_port=port)

    async with server.serving_probes(settings, Handlers(waiting_for=lambda: ["x"])), aiohttp.ClientSession() as session:
        seen = []
        for method, path in (("GET", "/healthz"), ("GET", "/readyz"), ("POST", "/mutate")):
            async with session.request(method, f"http://127.0.0.1:{port}{path}") as response:
                seen.append(response.status)

    assert seen == [200, 503, 404]


async def test_no_probes_are_served_where_no_port_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []

    @asynccontextmanager
    async def listening(address: Any, *_: Any, **__: Any) -> AsyncIterator[Any]:
        opened.append(address)
        yield SimpleNamespace(port=1)

    monkeypatch.setattr(listener, "listening", listening)
    async with server.serving_probes(Settings(), Handlers()):
        pass
    assert opened == []

    async with server.serving_probes(Settings(plain_port=0), Handlers()):
        pass
    assert len(opened) == 1


async def test_metrics_may_have_an_address_of_their_own() -> None:
    settings = Settings(host="127.0.0.1", port=0, plain_host="127.0.0.2", plain_port=0, linger=timedelta(0))

    async with (
        serving(settings) as client,
        client.session.get(f"http://127.0.0.2:{client.server.plain_port}/healthz") as there,
    ):
        assert there.status == 200
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.get("/healthz", plain=True)


UNHEARD: dict[str, tuple[dict[str, Any], str]] = {
    "a webhook's port in use": ({"port": "taken"}, "port in use; .* choose another webhook.port"),
    "a port of metrics in use": ({"plain_port": "taken"}, "port in use; .* choose another metrics.port"),
    "an address of another machine": ({"host": "192.0.2.1"}, "cannot listen on 192.0.2.1 port 0: .* webhook.host"),
}


@pytest.mark.parametrize(("settings", "said"), UNHEARD.values(), ids=UNHEARD)
async def test_a_server_that_cannot_listen_raises_a_fix_error_with_the_remedy(
    settings: dict[str, Any], said: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        given = {key: port if value == "taken" else value for key, value in settings.items()}
        with pytest.raises(FixError, match=said.replace("port in use", f"127.0.0.1 port {port}: .*")):
            async with serving(replace(QUICK, **given)):
                pass


async def test_an_expired_certificate_makes_the_server_unready() -> None:
    old = certificate.self_made(["127.0.0.1"], now=datetime.now(UTC) - timedelta(days=400))

    async with server.serving(QUICK, Handlers(mutate=mutate, validate=validate), old) as running:
        assert any("expired" in what for what in running.waiting_for())
        await running.renew(CERTIFICATE)
        assert running.waiting_for() == []


async def test_the_metrics_page_gets_readiness_and_certificate_expiry_from_the_server() -> None:
    told: list[tuple[list[str], Mapping[str, datetime]]] = []

    def page(waiting: Sequence[str], expiries: Mapping[str, datetime]) -> tuple[bytes, str]:
        told.append((list(waiting), dict(expiries)))
        return b"", "text/plain"

    old = certificate.self_made(["127.0.0.1"], now=datetime.now(UTC) - timedelta(days=400))
    async with server.serving(QUICK, Handlers(mutate=mutate, metrics=page), old) as running:
        running.page(server.METRICS)
        await running.renew(replace(CERTIFICATE, authority=b""))
        running.page(server.METRICS)

    assert old.authority_expires is not None
    assert told == [
        (
            [f"the certificate expired at {old.expires.isoformat()}"],
            {server.LEAF: old.expires, server.AUTHORITY: old.authority_expires},
        ),
        ([], {server.LEAF: CERTIFICATE.expires}),
    ]


async def test_a_renewed_certificate_is_shown_to_new_connections(client: Client) -> None:
    fresh = certificate.self_made(["127.0.0.1"], now=datetime.now(UTC))

    await client.server.renew(fresh)

    connector = aiohttp.TCPConnector(ssl=trusting(fresh))
    async with aiohttp.ClientSession(connector=connector) as session:
        assert (await Client(client.server, session).get("/healthz"))[0] == 200


async def test_a_request_under_way_is_answered_before_the_server_stops() -> None:
    half, go_on = asyncio.Event(), asyncio.Event()
    review = as_json(review_of(a_pod()))

    async def halting() -> AsyncIterator[bytes]:
        yield review[:100]
        half.set()
        await go_on.wait()
        yield review[100:]

    stack = server.serving(QUICK, Handlers(mutate=mutate, validate=validate), CERTIFICATE)
    running = await stack.__aenter__()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting(CERTIFICATE))) as session:
        under_way = asyncio.create_task(Client(running, session).post("/mutate", halting()))
        await half.wait()
        await until(lambda: running.in_flight == 1)
        stopping = asyncio.create_task(stack.__aexit__(None, None, None))
        # Knocking at the port while it is still open would leave a handshake behind; the loop's turns are enough.
        for _ in range(10):
            await asyncio.sleep(0)
        assert running.draining
        assert not stopping.done()
        go_on.set()

        status, answer = await under_way
        await stopping

    assert (status, answer["response"]["allowed"]) == (200, True)
    assert not accepts(running.port)


async def test_a_stopping_server_waits_for_the_last_review_in_progress_and_no_longer() -> None:
    settings = Settings(host="127.0.0.1", port=0, drain=timedelta(minutes=1))
    running = server.Server(Handlers(mutate=mutate, validate=validate), settings)
    running.in_flight += 1
    running.end_review()

    running.in_flight += 1
    running.draining = True
    drained = asyncio.create_task(running.drained())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not drained.done()

    running.end_review()
    async with asyncio.timeout(30):
        await drained


async def test_a_request_that_never_ends_does_not_keep_the_server() -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(30)

    settings = Settings(host="127.0.0.1", port=0, linger=timedelta(0), drain=timedelta(milliseconds=50))
    stack = server.serving(settings, Handlers(mutate=mutate, validate=validate), CERTIFICATE)
    running = await stack.__aenter__()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting(CERTIFICATE))) as session:
        under_way = asyncio.create_task(Client(running, session).post("/mutate", endless()))
        await until(lambda: running.in_flight == 1)

        async with asyncio.timeout(30):
            await stack.__aexit__(None, None, None)

        with pytest.raises(aiohttp.ClientError):
            await under_way


async def test_a_stopping_server_turns_unready_before_it_closes_its_port() -> None:
    settings = Settings(host="127.0.0.1", port=0, linger=timedelta(seconds=1.5), drain=timedelta(seconds=1))
    stack = server.serving(settings, Handlers(mutate=mutate, validate=validate), CERTIFICATE)
    running = await stack.__aenter__()
    stopping = asyncio.create_task(stack.__aexit__(None, None, None))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting(CERTIFICATE))) as session:
        client = Client(running, session)

        await until(lambda: running.draining)
        assert await client.get("/readyz") == (503, "waiting: the server is stopping\n")
        assert (await client.post("/mutate", review_of(a_pod())))[0] == 200

    await stopping
    assert not accepts(running.port)


async def test_verdicts_that_allow_carry_warnings() -> None:
    async with serving(validate=lambda _review: Verdict(warnings=("muster: mind the gap",))) as client:
        _, answer = await client.post("/validate", review_of(a_pod()))

    assert answer["response"]["warnings"] == ["muster: mind the gap"]


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_more_reviews_than_are_let_in_are_told_to_come_again() -> None:
    half, go_on = asyncio.Event(), asyncio.Event()
    review = as_json(review_of(a_pod()))

    async def halting() -> AsyncIterator[bytes]:
        yield review[:100]
        half.set()
        await go_on.wait()
        yield review[100:]

    async with serving(replace(QUICK, reviews=1)) as client:
        first = asyncio.create_task(client.post("/mutate", halting()))
        await half.wait()
        await until(lambda: client.server.in_flight == 1)

        url, headers = client._url("/validate"), {"Content-Type": "application/json"}
        async with client.session.post(url, data=review, headers=headers) as busy:
            told = (busy.status, busy.headers["Retry-After"], (await busy.json())["reason"])
        go_on.set()

        assert told == (429, "1", "TooManyRequests")
        assert client.observed[0] == ("validate", Outcome.SHED)
        assert (await first)[0] == 200
        assert (await client.post("/validate", review))[0] == 200


async def test_a_server_that_is_not_ready_is_asked_again() -> None:
    def unready(_review: Review) -> Verdict:
        raise RetryError("the cluster's objects are not all read yet")

    async with serving(mutate=unready) as client:
        url, headers = client._url("/mutate"), {"Content-Type": "application/json"}
        async with client.session.post(url, data=as_json(review_of(a_pod())), headers=headers) as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "1")


async def test_a_small_review_is_answered_between_two_large_ones() -> None:
    judged: list[str] = []
    first = asyncio.Event()

    def judge(review: Review) -> Verdict:
        judged.append(review.uid)
        first.set()
        # The turns of the others come after as long as this has taken.
        end = asyncio.get_running_loop().time() + handler.LONGEST_PAUSE
        while review.uid.startswith("large") and asyncio.get_running_loop().time() < end:
            pass
        return ALLOWED

    def sent(uid: str, size: int) -> bytes:
        review = json.loads(hostile_reviews.pod(annotations={"a": "x" * size}))
        review["request"]["uid"] = uid
        return json.dumps(review).encode()

    async with serving(mutate=judge) as client, asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(client.post("/mutate", sent(f"large-{number}", 100_000)))
        await first.wait()
        tasks.create_task(client.post("/mutate", sent("small", 0)))

    assert [uid.partition("-")[0] for uid in judged] == ["large", "small", "large", "large"]
