"""What the reader of Prometheus' API makes of answers: samples, or errors that say what to mend; all within bounds."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from admission.accounting.device_samples import Quantity
from admission.errors import FixError, MusterError, RetryError
from admission.prometheus import api_client, device_queries
from admission.prometheus.api_client import ApiClient, Server
from admission.prometheus.device_meter import PrometheusMeter
from admission.webhook.tls import certificate

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
END = START + timedelta(minutes=3)
FIRST = int(START.timestamp()) + 60
GPU = "gpu.example.com"
QUERY = 'max by (uuid) (avg_over_time(busy{uuid=~"$uuids"}[$step]))'
QUERIES = device_queries.chosen({Quantity.UTILIZATION: [f"{GPU}={QUERY}"]})


class Site:
    """A server that answers each request with the same status and body, and keeps what it was asked."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.body = body
        self.forms: list[dict[str, Any]] = []
        self.tokens: list[str | None] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.forms.append(dict(await request.post()))
        self.tokens.append(request.headers.get("Authorization"))
        return web.Response(status=self.status, body=self.body, headers={"Location": "http://127.0.0.1:1/elsewhere"})


@asynccontextmanager
async def serving(site: Site, shown: certificate.Certificate | None = None) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/prefix/api/v1/query_range", site.answer)
    context = None
    if shown is not None:
        context = certificate.server_context()
        await asyncio.to_thread(certificate.load, context, shown)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        scheme = "http" if shown is None else "https"
        yield f"{scheme}://127.0.0.1:{runner.addresses[0][1]}/prefix/"
    finally:
        await runner.cleanup()


def matrix(*series: tuple[dict[str, str], Sequence[tuple[float, str]]]) -> bytes:
    result = [{"metric": labels, "values": values} for labels, values in series]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


async def asked(url: str, uuids: tuple[str, ...] = ("GPU-1",), **server: Any) -> dict[tuple[str, str], Any]:
    meter = PrometheusMeter(ApiClient(Server(url=url, **server)), QUERIES, step=60)
    return dict(await meter.samples(Quantity.UTILIZATION, {GPU: uuids, "other": ["x"]}, START, END))


async def test_a_query_names_devices_times_and_steps_and_answers_in_whole_numbers() -> None:
    values = [(FIRST, "0.5"), (FIRST + 60, "NaN"), (FIRST + 120.0, "1.000001")]
    site = Site(200, matrix(({"uuid": 'a.b"c'}, values), ({"uuid": "GPU-2"}, [(FIRST, "0")])))
    async with serving(site) as url:
        found = await asked(url, ('a.b"c', "GPU-2"))

    assert found == {(GPU, 'a.b"c'): [(FIRST, 500_000), (FIRST + 120, 1_000_000)], (GPU, "GPU-2"): [(FIRST, 0)]}
    (form,) = site.forms
    assert form["query"] == 'max by (uuid) (avg_over_time(busy{uuid=~"GPU-2|a\\\\.b\\"c"}[60s]))'
    assert (form["start"], form["end"], form["step"]) == (str(FIRST), str(FIRST + 120), "60")
    assert form["partial_response"] == "false"
    assert site.tokens == [None]


async def test_many_devices_are_asked_for_in_parts() -> None:
    site = Site(200, matrix())
    async with serving(site) as url:
        await asked(url, tuple(f"GPU-{number}" for number in range(601)))

    assert [form["query"].count("|") + 1 for form in site.forms] == [250, 250, 101]


async def test_the_server_is_known_by_its_authority_and_shown_the_token_of_the_moment(tmp_path: Path) -> None:
    made = await asyncio.to_thread(certificate.self_made, ["127.0.0.1"], now=datetime.now(UTC))
    authority, token = tmp_path / "ca.crt", tmp_path / "token"
    authority.write_bytes(made.authority)
    site = Site(200, matrix())
    async with serving(site, made) as url:
        for text in ("first\n", "second"):
            token.write_text(text)
            await asked(url, authority=str(authority), token_file=str(token))
        assert site.tokens == ["Bearer first", "Bearer second"]

        with pytest.raises(RetryError, match="does not answer"):
            await asked(url)
        token.write_text("two\nlines")
        with pytest.raises(FixError, match=r"usage\.prometheus\.token_file"):
            await asked(url, token_file=str(token))
        with pytest.raises(FixError, match=r"usage\.prometheus\.authority"):
            await asked(url, authority=str(tmp_path / "none"))


ANSWERS: dict[str, tuple[int, bytes, type[MusterError], str]] = {
    "a query that is refused": (400, b'{"status": "error", "error": "parse error"}', FixError, "400: parse error"),
    "somebody who is not let in": (401, b"<html>who are you?", FixError, "who are you"),
    "a server that is starting": (503, b"Service Unavailable", RetryError, "503"),
    "another place": (302, b"", RetryError, "302"),
    "no JSON": (200, b"<html>", RetryError, "not that of Prometheus"),
    "an error beside a status that says it went well": (200, b'{"status": "error", "error": "x"}', RetryError, "x"),
    "a number": (200, b'{"status":"success","data":{"resultType":"scalar"}}', FixError, "a scalar"),
    "a series without the label": (200, matrix(({"UUID": "x"}, [(FIRST, "1")])), FixError, "without the label uuid"),
    "two series of one device": (200, matrix(*[({"uuid": "x"}, [(FIRST, "1")])] * 2), FixError, "several series of x"),
    "a server that answers more often": (
        200,
        matrix(({"uuid": "x"}, [(FIRST + 15 * at, "1") for at in range(5)])),
        FixError,
        f"x at {FIRST + 15}, .* every 60 seconds",
    ),
    "a time twice": (200, matrix(({"uuid": "x"}, [(FIRST, "0")] * 2)), FixError, f"x at {FIRST}, twice"),
    "a time before": (200, matrix(({"uuid": "x"}, [(FIRST - 60, "0")])), FixError, f"x at {FIRST - 60}, "),
    "a time after": (200, matrix(({"uuid": "x"}, [(FIRST + 180, "NaN")])), FixError, f"x at {FIRST + 180}, "),
    "a time that is none": (200, matrix(({"uuid": "x"}, [(1e300, "0")])), FixError, "x at -1, "),
    "a value that is no number": (200, matrix(({"uuid": "x"}, [(FIRST, "much")])), FixError, "no number"),
}


@pytest.mark.parametrize(("status", "body", "kind", "said"), ANSWERS.values(), ids=ANSWERS)
async def test_an_answer_that_cannot_be_used_is_an_error(
    status: int, body: bytes, kind: type[MusterError], said: str
) -> None:
    async with serving(Site(status, body)) as url:
        with pytest.raises(kind, match=said) as raised:
            await asked(url)
    assert len(str(raised.value)) < 500


async def test_an_answer_without_end_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_client, "MOST_BYTES", 10_000)
    async with serving(Site(200, b" " * 20_000)) as url:
        with pytest.raises(FixError, match="longer than"):
            await asked(url)


@pytest.mark.parametrize("wrong", ["57", "-1", "+Inf"])
async def test_values_that_cannot_be_are_left_out(wrong: str) -> None:
    values = [(FIRST, wrong), (FIRST + 60, "0.25")]
    async with serving(Site(200, matrix(({"uuid": "GPU-1"}, values)))) as url:
        assert await asked(url) == {(GPU, "GPU-1"): [(FIRST + 60, 250_000)]}


async def test_an_empty_query_asks_nothing() -> None:
    site = Site(200, matrix())
    async with serving(site) as url:
        queries = device_queries.chosen({Quantity.POWER: ["gpu.nvidia.com="]})
        meter = PrometheusMeter(ApiClient(Server(url=url)), queries, step=60)
        assert await meter.samples(Quantity.POWER, {"gpu.nvidia.com": ["GPU-1"]}, START, END) == {}
    assert site.forms == []
