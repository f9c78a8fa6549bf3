"""The stream of events over HTTP: who gets it, what it says, and when it ends."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from admission.dashboard import request_context
from admission.dashboard.pages import event_stream
from admission.dashboard.pages.event_stream import MOST_OF_A_VISITOR
from admission.errors import ClusterUnavailableError
from tests import dashboards
from tests.dashboards import ADMIN, MEMBER, Site

pytestmark = pytest.mark.timeout(30)

AS = {who: {"Authorization": f"Bearer {token}"} for who, token in (("ada", ADMIN), ("ben", MEMBER))}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "TICK_SECONDS", 0.01)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with dashboards.a_site() as served:
        yield served


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


async def block(stream: aiohttp.ClientResponse) -> str:
    """Return the next message or comment; "" at the end."""
    async with asyncio.timeout(10):
        lines = []
        while line := (await stream.content.readline()).decode():
            if line == "\n":
                break
            lines.append(line)
        return "".join(lines)


async def test_a_stream_says_that_something_has_changed_and_nothing_more(
    site: Site, session: aiohttp.ClientSession
) -> None:
    async with session.get(f"{site.url}/events?topics=gangs/team-a/bigger", headers=AS["ben"]) as stream:
        assert stream.status == 200
        assert stream.content_type == "text/event-stream"
        assert stream.headers["Cache-Control"] == "no-store"
        assert stream.headers["Content-Security-Policy"] == request_context.POLICY
        assert await block(stream) == "retry: 1000\ndata: changed\n"
        site.cluster.change("team-a/bigger", phase="Running", hold=None)
        site.clock.seconds += 2

        while (told := await block(stream)) == ":\n":
            pass
        assert told == "retry: 1000\ndata: changed\n"


async def test_who_has_not_signed_in_gets_no_stream(site: Site, session: aiohttp.ClientSession) -> None:
    async with session.get(f"{site.url}/events?topics=gangs", headers={"Accept": "text/event-stream"}) as answer:
        assert answer.status == 401


async def test_a_stream_ends_with_the_token(site: Site, session: aiohttp.ClientSession) -> None:
    async with session.get(f"{site.url}/events?topics=gangs", headers=AS["ben"]) as stream:
        await block(stream)
        assert await block(stream) == ":\n", "a heartbeat, since nothing has changed"
        del site.reviews.known[MEMBER]
        site.clock.seconds += 31
        site.cluster.change("team-a/bigger", phase="Running")

        assert "data" not in (await stream.content.read()).decode()


async def test_a_stream_ends_where_rights_cannot_be_asked_for(site: Site, session: aiohttp.ClientSession) -> None:
    async with session.get(f"{site.url}/events?topics=gangs", headers=AS["ben"]) as stream:
        await block(stream)
        site.reviews.error = ClusterUnavailableError("the API server is away")
        site.clock.seconds += 31

        assert "data" not in (await stream.content.read()).decode()


async def test_a_stream_ends_after_its_time(
    site: Site, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "LONGEST_SECONDS", 0.05)
    async with session.get(f"{site.url}/events?topics=gangs", headers=AS["ben"]) as stream:
        assert (await stream.content.read()).endswith(b"\n\n")


async def test_streams_end_when_the_server_stops(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "TICK_SECONDS", 30)
    async with asyncio.timeout(20):
        async with dashboards.a_site() as site:
            stream = await session.get(f"{site.url}/events?topics=gangs", headers=AS["ben"])
            await block(stream)
        assert await stream.content.read() == b""


async def test_a_visitor_has_so_many_streams_at_most_and_one_that_is_left_counts_no_longer(
    site: Site, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "TICK_SECONDS", 30)
    url = f"{site.url}/events?topics=gangs"
    streams = [await session.get(url, headers=AS["ben"]) for _ in range(MOST_OF_A_VISITOR)]
    async with session.get(url, headers=AS["ben"]) as refused, session.get(url, headers=AS["ada"]) as other:
        assert (refused.status, other.status) == (429, 200)
    streams[0].close()

    status = 429
    for _ in range(500):
        if status == 200:
            break
        await asyncio.sleep(0.01)
        async with session.get(url, headers=AS["ben"]) as again:
            status = again.status
    assert status == 200
    for stream in streams:
        stream.close()
