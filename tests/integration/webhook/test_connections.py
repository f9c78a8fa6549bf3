"""How many connections there may be, how long each may take, and who may talk at all."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes.admission_review import Verdict
from admission.errors import FixError, RetryError
from admission.webhook import listener
from admission.webhook.body_reader import MAX_BODY
from admission.webhook.connections import DISMISSED_SECONDS, Connections, Deadlines
from admission.webhook.known_paths import KnownPaths
from admission.webhook.listener import Address
from admission.webhook.refusals import Refusal
from admission.webhook.server import Settings
from tests.integration.webhook import test_server
from tests.integration.webhook.test_server import HEAD, QUICK, Client, as_json, review_of
from tests.unit.webhook.cases import a_pod
from tests.unit.webhook.waiting import until

BRISK = replace(QUICK, deadlines=Deadlines(head=0.2, answer=0.2, unused=10.0))
SEGMENT = "5e9" * 13 + "5"


@asynccontextmanager
async def serving(settings: Settings = BRISK, **handlers: Any) -> AsyncIterator[tuple[Client, list[Refusal]]]:
    refused: list[Refusal] = []
    async with test_server.serving(settings, refuse=refused.append, **handlers) as client:
        yield client, refused


def a_request(body: bytes, *, path: bytes = b"/mutate") -> bytes:
    return HEAD.replace(b"/mutate", path) + b"Content-Length: %d\r\n\r\n" % len(body) + body


REVIEW = a_request(as_json(review_of(a_pod())))


async def answered(reader: asyncio.StreamReader) -> int:
    """Read one answer; return its status."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().splitlines() if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.split(b":")[1]))
    return int(head.split(b" ")[1])


async def test_a_connection_that_does_not_begin_tls_is_closed() -> None:
    async with serving() as (client, refused):
        reader, writer = await asyncio.open_connection("127.0.0.1", client.server.port)

        assert await reader.read() == b""
        writer.close()

    assert set(refused) == {Refusal.HEAD}


SLOW_HEADS = {"no head": b"", "half a request line": b"POST /mut", "half of its headers": HEAD + b"Content-Le"}


@pytest.mark.parametrize("sent", SLOW_HEADS.values(), ids=SLOW_HEADS)
async def test_a_head_that_does_not_come_is_not_waited_for_long(sent: bytes) -> None:
    async with serving() as (client, refused), client.raw() as (reader, writer):
        writer.write(sent)

        await assert_closed(reader)

    assert refused == [Refusal.HEAD]


async def test_a_connection_that_waits_for_its_first_request_is_kept_as_idle_ones_are() -> None:
    async with serving() as (client, _), client.raw() as (reader, writer):
        await asyncio.sleep(3 * BRISK.deadlines.head)
        writer.write(REVIEW)

        assert await answered(reader) == 200


async def test_a_head_that_comes_in_drops_is_not_waited_for_long() -> None:
    async with serving() as (client, refused), client.raw() as (reader, writer):

        async def drip() -> None:
            for byte in HEAD * 10:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.01)

        dripping = asyncio.create_task(drip())
        await assert_closed(reader)
        dripping.cancel()

    assert refused == [Refusal.HEAD]


async def test_a_connection_is_kept_between_requests_and_closed_when_the_next_head_does_not_come() -> None:
    async with serving() as (client, refused), client.raw() as (reader, writer):
        writer.write(REVIEW)
        assert await answered(reader) == 200
        await asyncio.sleep(3 * BRISK.deadlines.head)
        writer.write(REVIEW)
        assert await answered(reader) == 200

        writer.write(REVIEW[:40])
        await assert_closed(reader)

    assert refused == [Refusal.HEAD]


async def test_an_answer_that_is_not_read_is_not_kept_for_long() -> None:
    warnings = tuple("x" * 4_000 for _ in range(5_000))
    async with serving(mutate=lambda _review: Verdict(warnings=warnings)) as (client, refused):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", client.server.port, ssl=test_server.trusting(test_server.CERTIFICATE), limit=1
        )
        writer.write(REVIEW)
        await until(lambda: Refusal.ANSWER in refused)

        with pytest.raises((ConnectionError, EOFError)):
            await reader.readexactly(len(warnings) * 4_000)
        writer.transport.abort()


async def test_an_answer_that_is_read_drop_by_drop_is_not_kept_for_long() -> None:
    """By a client that always reads a little before it would be given up."""
    warnings = tuple("x" * 4_000 for _ in range(5_000))
    async with serving(mutate=lambda _review: Verdict(warnings=warnings)) as (client, refused):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", client.server.port, ssl=test_server.trusting(test_server.CERTIFICATE), limit=1
        )
        writer.write(REVIEW)

        read = 0
        while Refusal.ANSWER not in refused:
            read += len(await reader.read(100_000))
            await asyncio.sleep(BRISK.deadlines.answer / 4)
        assert read < len(warnings) * 4_000
        writer.transport.abort()


async def test_time_in_which_the_process_itself_did_not_run_does_not_count() -> None:
    async with serving() as (client, refused), client.raw() as (reader, writer):
        writer.write(REVIEW[:40])
        await asyncio.sleep(0)
        blocked_until = asyncio.get_running_loop().time() + 5 * BRISK.deadlines.head
        while asyncio.get_running_loop().time() < blocked_until:
            pass
        writer.write(REVIEW[40:])

        assert await answered(reader) == 200

    assert refused == []


async def test_a_new_connection_takes_the_place_of_the_oldest_stranger_and_never_of_the_api_servers() -> None:
    async with serving(replace(QUICK, connections=3)) as (client, refused), client.raw() as (api_server, asking):
        asking.write(REVIEW)
        assert await answered(api_server) == 200

        async with client.raw() as (oldest, _), client.raw() as (later, _), client.raw() as (newest, writer):
            await assert_closed(oldest)
            assert refused == [Refusal.CONNECTIONS]
            assert [later.at_eof(), newest.at_eof()] == [False, False]

            writer.write(REVIEW)
            assert await answered(newest) == 200
        asking.write(REVIEW)
        assert await answered(api_server) == 200


async def test_the_host_with_most_strangers_loses_its_own_however_new_another_hosts_connection_is() -> None:
    """So a flood closes no connection of the API server between its handshake and its first request."""
    async with (
        serving(replace(QUICK, connections=3)) as (client, refused),
        client.raw("127.0.0.1") as (api_server, asking),
        client.raw("127.0.0.2") as (first, _),
        client.raw("127.0.0.2") as (second, _),
        client.raw("127.0.0.2") as (third, _),
        client.raw("127.0.0.3") as (other, _),
    ):
        await assert_closed(first)
        await assert_closed(second)
        assert refused == [Refusal.CONNECTIONS] * 2

        asking.write(REVIEW)
        assert await answered(api_server) == 200
        assert [third.at_eof(), other.at_eof()] == [False, False]


async def test_where_all_are_the_api_servers_the_one_that_is_idle_for_longest_is_closed() -> None:
    async with (
        serving(replace(QUICK, connections=2)) as (client, _),
        client.raw() as (first, asking),
        client.raw() as (second, other),
    ):
        for reader, writer in ((first, asking), (second, other), (first, asking)):
            writer.write(REVIEW)
            assert await answered(reader) == 200

        async with client.raw() as (third, writer):
            await assert_closed(second)
            for reader, sending in ((third, writer), (first, asking)):
                sending.write(REVIEW)
                assert await answered(reader) == 200


async def test_while_all_connections_are_at_work_a_new_one_is_refused() -> None:
    async with serving(replace(QUICK, connections=1)) as (client, refused), client.raw() as (reader, writer):
        writer.write(REVIEW[:-1])
        await until(lambda: client.server.in_flight == 1)

        with pytest.raises((ConnectionError, EOFError)):
            async with client.raw():
                pass
        writer.write(REVIEW[-1:])

        assert await answered(reader) == 200
    assert refused == [Refusal.CONNECTIONS]


async def test_a_flood_of_connections_leaves_no_more_than_there_may_be() -> None:
    async with serving(replace(QUICK, connections=8)) as (client, refused):
        flood = [await asyncio.open_connection("127.0.0.1", client.server.port) for _ in range(100)]
        await until(lambda: len(refused) == 92)
        for reader, _ in flood[:92]:
            assert await closed(reader)
        async with client.raw() as (reader, writer):
            writer.write(REVIEW)
            assert await answered(reader) == 200
        for _, writer in flood:
            writer.transport.abort()


class One:
    """A connection of which only its host is known, and whether it was closed."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.address = address
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


async def test_of_many_hosts_with_few_strangers_each_the_oldest_stranger_goes() -> None:
    """So a flood from many hosts closes none of the connections that the API server has just opened."""
    connections = Connections(16, Deadlines(), refuse=lambda _refusal: None)
    flood: list[Any] = [One(f"10.0.0.{number}") for number in range(12)]
    api_server: list[Any] = [One("10.1.0.1") for _ in range(3)]
    more: list[Any] = [One(f"10.0.1.{number}") for number in range(13)]

    assert all(connections.admit(one) for one in (*flood, *api_server, *more))
    assert [one.aborted for one in flood] == [True] * 12
    assert not any(one.aborted for one in api_server)

    # A host with a fourth of all of them loses its own, however old those of others are.
    crowd: list[Any] = [One("10.2.0.1") for _ in range(5)]
    assert all(connections.admit(one) for one in crowd)
    assert [one.aborted for one in crowd] == [True, False, False, False, False]


async def test_connections_that_are_closed_are_forgotten() -> None:
    connections = Connections(4, Deadlines(), refuse=lambda _refusal: None)
    ones: list[Any] = [One() for _ in range(6)]
    assert all(connections.admit(one) for one in ones)
    assert ([one.aborted for one in ones], len(connections)) == ([True] * 2 + [False] * 4, 4)

    connections.prove(ones[0])
    assert len(connections) == 4
    connections.prove(ones[5])
    connections.close_all()
    assert (len(connections), all(one.aborted for one in ones)) == (0, True)


# Paths


STRANGE = {
    "no segment": b"/mutate",
    "another segment": b"/" + b"0" * 40 + b"/mutate",
    "no endpoint": b"/" + SEGMENT.encode() + b"/convert",
    "the segment alone": b"/" + SEGMENT.encode(),
    "more than it": b"/" + SEGMENT.encode() + b"/mutate/",
}


@pytest.mark.parametrize("path", STRANGE.values(), ids=STRANGE)
async def test_whoever_does_not_know_the_path_is_refused_before_its_body_is_read(path: bytes) -> None:
    async with knowing() as (client, refused), client.raw() as (reader, writer):
        writer.write(a_request(b" " * MAX_BODY, path=path)[:200])

        assert (await reader.readuntil(b"\r\n")).split(b" ")[1] == b"404"
        assert client.server.bodies.reserved == 0
        await assert_closed(reader)

    assert refused == [Refusal.PATH]
    assert client.observed == []


async def test_somebody_who_is_refused_and_gone_is_not_closed_again(caplog: pytest.LogCaptureFixture) -> None:
    async with knowing() as (client, _), client.raw() as (reader, writer):
        writer.write(a_request(b"{}", path=b"/"))
        assert (await reader.read()).split(b" ")[1] == b"404"
        writer.close()
        await asyncio.sleep(2 * DISMISSED_SECONDS)

    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


async def test_whoever_knows_the_path_is_answered() -> None:
    async with knowing() as (client, refused):
        assert (await client.post(f"/{SEGMENT}/mutate", review_of(a_pod())))[0] == 200
        assert (await client.get("/readyz"))[0] == 200

    assert refused == []


async def test_plain_paths_are_answered_while_they_are_registered() -> None:
    async def is_plain_registered() -> bool:
        return True

    async with knowing(is_plain_registered) as (client, _):
        assert (await client.post("/mutate", review_of(a_pod())))[0] == 200


async def test_while_nobody_can_tell_whether_plain_paths_are_registered_they_are_asked_for_again() -> None:
    async def is_plain_registered() -> bool:
        raise RetryError("the API server is away")

    async with knowing(is_plain_registered) as (client, _):
        status, answer = await client.post("/mutate", review_of(a_pod()))

    assert (status, answer["reason"]) == (503, "ServiceUnavailable")


async def test_a_segment_is_shown_in_no_answer_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    async with knowing() as (client, _), client.session.get(client._url(f"/{SEGMENT}/mutate")) as response:
        assert (response.status, response.headers["Allow"]) == (405, "POST")
        text = json.dumps(await response.json())

    assert SEGMENT not in text + caplog.text


@asynccontextmanager
async def knowing(
    is_plain_registered: Callable[[], Any] | None = None,
) -> AsyncIterator[tuple[Client, list[Refusal]]]:
    async def never() -> bool:
        return False

    paths = KnownPaths([SEGMENT], is_plain_registered=is_plain_registered or never)
    refused: list[Refusal] = []
    async with test_server.serving(QUICK, paths=paths, refuse=refused.append) as client:
        yield client, refused


async def closed(reader: asyncio.StreamReader) -> bool:
    """Wait until the server has closed a connection, whatever it says before."""
    try:
        async with asyncio.timeout(30):
            await reader.read()
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


async def assert_closed(reader: asyncio.StreamReader) -> None:
    assert await closed(reader), "it is still open"


@pytest.mark.parametrize("shared", [False, True])
async def test_a_port_that_somebody_shares_is_not_free(shared: bool) -> None:
    async with serving(replace(QUICK, shared=shared)) as (client, _):
        taken = Address(host="127.0.0.1", port=client.server.port, setting="webhook", shared=shared)
        with pytest.raises(FixError, match=r"choose another webhook\.port"):
            await listener.ensure_free(taken)

    await listener.ensure_free(taken)
