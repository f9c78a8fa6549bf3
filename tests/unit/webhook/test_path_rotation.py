"""The segments are shared by all processes, in the Secret that the authorities are in."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from structlog.testing import capture_logs

from admission.errors import ConflictError, RetryError
from admission.webhook import path_rotation, path_segments
from admission.webhook.path_rotation import PathSegments, ServedPaths
from admission.webhook.path_segments import PLAIN
from admission.webhook.tls.ca_rotation import Lifetimes
from admission.webhook.tls.rotation import OwnAuthorities
from tests.unit.webhook.test_server import until

DAY = timedelta(days=1)
TERMS = Lifetimes(authority=90 * DAY, leaf=7 * DAY)


@dataclass
class Secret:
    """The Secret, and the time; meanwhile: what others have written by the next write."""

    entries: dict[str, bytes] | None = None
    version: int = 0
    meanwhile: list[dict[str, bytes]] = field(default_factory=list)
    now: datetime = datetime(2026, 8, 1, tzinfo=UTC)
    is_away: bool = False

    async def read(self) -> tuple[Mapping[str, bytes], str] | None:
        if self.is_away:
            raise RetryError("the API server is away")
        return None if self.entries is None else (self.entries, str(self.version))

    async def write(self, entries: Mapping[str, bytes], version: str | None) -> None:
        if self.meanwhile:
            self.entries = {**(self.entries or {}), **self.meanwhile.pop()}
            self.version += 1
        if version != (None if self.entries is None else str(self.version)):
            raise ConflictError("somebody else was quicker")
        self.entries, self.version = dict(entries), self.version + 1

    def process(self, *named: str) -> PathSegments:
        return PathSegments(self, TERMS, lambda: self.now, named=named)


async def test_all_processes_know_and_register_the_same() -> None:
    secret = Secret()
    first, second = secret.process(), secret.process()

    served = [await process.current() for process in (first, second, first)]

    assert served[0] == served[1] == served[2]
    assert served[0].known == (served[0].registered,)


async def test_after_an_upgrade_the_plain_paths_stay_registered_until_all_know_the_segment() -> None:
    secret = Secret()
    process = secret.process(PLAIN)

    assert (await process.current()).registered == PLAIN
    secret.now += 3 * DAY
    served = await process.current()
    assert served.registered == served.known[0]


async def test_when_plain_paths_are_found_again_after_a_rollback_they_stay_until_all_know_a_new_segment() -> None:
    """The segments of before the rollback are old enough, but processes of the earlier Muster know none of them."""
    secret = Secret()
    before = await secret.process().current()
    secret.now += 10 * DAY

    again, another = secret.process(PLAIN), secret.process(PLAIN)
    served = [await process.current() for process in (again, another, again)]
    assert [one.registered for one in served] == [PLAIN] * 3
    assert (served[2].known[0], len(served[2].known)) == (before.registered, 2)

    secret.now += 3 * DAY
    assert (await again.current()).registered == (await another.current()).registered == served[2].known[1]
    secret.now += 58 * DAY
    assert (await again.current()).registered == served[2].known[1]
    secret.now += 3 * DAY
    assert (await again.current()).registered not in (PLAIN, served[2].known[1])


async def test_the_authorities_and_the_segments_leave_each_others_entries_alone() -> None:
    secret = Secret()
    authorities = OwnAuthorities(secret, ["localhost"], TERMS, lambda: secret.now)

    await authorities.current()
    before = dict(secret.entries or {})
    served = await secret.process().current()
    assert secret.entries is not None
    assert {key: secret.entries[key] for key in before} == before
    secret.now += 61 * DAY
    await authorities.current()

    assert secret.entries["ca.crt"] != before["ca.crt"]
    assert path_segments.read(secret.entries)[0].text == served.registered


async def test_authorities_are_made_where_the_secret_has_paths_alone() -> None:
    """As where certificates came from files before."""
    secret = Secret()
    await secret.process().current()

    assert (await OwnAuthorities(secret, ["localhost"], TERMS, lambda: secret.now).current()).bundle


async def test_of_two_that_write_at_once_one_reads_again() -> None:
    other = path_segments.rotate((), TERMS, now=datetime(2026, 7, 31, tzinfo=UTC))
    secret = Secret(meanwhile=[path_segments.encode(other)])

    served = await secret.process().current()

    assert served.known == (other[0].text,)


@pytest.mark.parametrize("entries", [None, {"ca.crt": b"of an earlier Muster, which knows no other entry"}])
async def test_what_is_registered_is_written_back_if_it_was_lost(entries: dict[str, bytes] | None) -> None:
    secret = Secret()
    process = secret.process()
    served = await process.current()

    secret.entries = entries
    assert await process.current() == served
    assert await secret.process(served.registered).current() == served


async def test_changes_are_served_and_failures_outlived() -> None:
    secret, served = Secret(), list[ServedPaths]()
    process = secret.process()
    first = await process.current()
    process.every = 0.001
    secret.is_away, secret.now = True, secret.now + 63 * DAY

    with capture_logs() as logs:
        keeping = asyncio.create_task(path_rotation.keep(process, served.append))
        await until(lambda: bool(logs))
        secret.is_away = False
        await until(lambda: bool(served))
        keeping.cancel()

    assert logs[0]["event"] == "the webhook's paths are not renewed"
    assert (served[0].known[0], len(served[0].known)) == (first.registered, 2)
    assert all(text not in str(logs) for text in served[0].known)
