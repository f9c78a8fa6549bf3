"""Places for signed heads outside of the cluster: a file, and an HTTP endpoint."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from admission.errors import FixError, RetryError
from admission.heads import head_document
from admission.ledger.head_sinks import FileSink, HttpSink
from tests.unit.heads.builders import a_signed_head

FIRST, SECOND, THIRD = (a_signed_head(number) for number in (1, 2, 3))


async def test_a_file_gets_each_head_once_and_keeps_what_stands_in_it(tmp_path: Path) -> None:
    path = tmp_path / "heads.jsonl"
    await FileSink(path).publish((FIRST,))
    sink = FileSink(path)

    await sink.publish((SECOND,))
    await sink.publish((SECOND, THIRD))

    assert head_document.from_text(path.read_text()).heads == (FIRST, SECOND, THIRD)


async def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(FixError, match=r"heads\.file: .*: No such file or directory"):
        await FileSink(tmp_path / "no" / "heads.jsonl").publish((FIRST,))


@asynccontextmanager
async def an_endpoint(*statuses: int) -> AsyncIterator[tuple[str, list[int]]]:
    """Yield a URL that answers with these statuses and then with 204, and the places of the heads that it got."""
    got: list[int] = []
    left = list(statuses)

    async def take(request: web.Request) -> web.Response:
        assert request.content_type == "application/json"
        status = left.pop(0) if left else 204
        if status < 300:
            got.append(json.loads(await request.text())["sequence"])
        return web.Response(status=status, text="" if status == 204 else "full " * 1000)

    app = web.Application()
    app.router.add_post("/heads", take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        [address] = runner.addresses
        yield f"http://user:secret@127.0.0.1:{address[1]}/heads", got
    finally:
        await runner.cleanup()


async def test_an_endpoint_gets_each_head_once_and_in_order() -> None:
    async with an_endpoint(204, 503, 302) as (url, got):
        sink = HttpSink(url)

        with pytest.raises(RetryError, match="answers 503: full") as error:
            await sink.publish((FIRST, SECOND))
        with pytest.raises(RetryError, match="answers 302"):
            await sink.publish((FIRST, SECOND))
        await sink.publish((FIRST, SECOND, THIRD))

    assert got == [1, 2, 3]
    assert len(str(error.value)) < 300


async def test_an_endpoint_that_is_away_is_told_without_its_password() -> None:
    async with an_endpoint() as (url, _):
        pass

    with pytest.raises(RetryError) as error:
        await HttpSink(url).publish((FIRST,))

    assert "secret" not in str(error.value)
