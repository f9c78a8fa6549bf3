"""The segments are shared by all processes, in the Secret that the authorities are in; controllers write them."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from structlog.testing import capture_logs

from admission.errors import ConflictError, FixError, RetryError
from admission.webhook import path_segments
from admission.webhook.path_rotation import RegisteredSegment, SharedSegments
from admission.webhook.path_segments import PLAIN
from admission.webhook.tls import rotation
from admission.webhook.tls.ca_rotation import Lifetimes
from admission.webhook.tls.rotation import OwnAuthorities, OwnCertificates
from tests.unit.webhook.waiting import until

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

    def controller(self, *named: str) -> RegisteredSegment:
        """named: what stands in the webhook configurations when it starts."""

        async def look() -> frozenset[str]:
            if self.is_away:
                raise RetryError("the API server is away")
            return frozenset(named)

        return RegisteredSegment(self, TERMS, lambda: self.now, named=look)

    def webhook(self) -> SharedSegments:
        return SharedSegments(self, TERMS)


async def test_all_controllers_register_the_same_and_all_webhooks_know_it() -> None:
    secret = Secret()
    first, second = secret.controller(), secret.controller()

    registered = [await controller.current() for controller in (first, second, first)]

    assert registered[0] == registered[1] == registered[2] != PLAIN
    assert await secret.webhook().current() == (registered[0],)


async def test_a_webhook_without_a_controller_knows_no_segment_and_writes_nothing() -> None:
    secret = Secret()

    assert await secret.webhook().current() == ()
    assert secret.entries is None


async def test_old_and_new_are_known_for_a_while() -> None:
    """The new one three days before it is registered, the old one until an authority of its age expires."""
    secret = Secret()
    controller, webhook = secret.controller(), secret.webhook()
    old = await controller.current()

    secret.now += 60 * DAY
    assert await controller.current() == old
    known = await webhook.current()
    assert (known[0], len(known)) == (old, 2)
    secret.now += 3 * DAY
    assert await controller.current() == known[1]
    assert await webhook.current() == known
    secret.now += 27 * DAY
    assert await controller.current() == known[1]
    assert await webhook.current() == (known[1],)


async def test_after_an_upgrade_the_plain_paths_stay_registered_until_all_know_the_segment() -> None:
    secret = Secret()
    controller = secret.controller(PLAIN)

    assert await controller.current() == PLAIN
    secret.now += 3 * DAY
    assert (await controller.current(),) == await secret.webhook().current()


async def test_when_plain_paths_are_found_again_after_a_rollback_they_stay_until_all_know_a_new_segment() -> None:
    """The segments of before the rollback are old enough, but processes of the earlier Muster know none of them."""
    secret = Secret()
    before = await secret.controller().current()
    secret.now += 10 * DAY

    again, another = secret.controller(PLAIN), secret.controller(PLAIN)
    assert [await one.current() for one in (again, another, again)] == [PLAIN] * 3
    known = await secret.webhook().current()
    assert (known[0], len(known)) == (before, 2)

    secret.now += 3 * DAY
    assert await again.current() == await another.current() == known[1]
    secret.now += 58 * DAY
    assert await again.current() == known[1]
    secret.now += 3 * DAY
    assert await again.current() not in (PLAIN, known[1])


async def test_what_stands_in_the_configurations_is_looked_up_again_if_the_secret_was_not_reached() -> None:
    secret = Secret()
    controller = secret.controller(PLAIN)
    secret.is_away = True
    with pytest.raises(RetryError):
        await controller.current()

    secret.is_away = False

    assert await controller.current() == PLAIN


async def test_the_authorities_and_the_segments_leave_each_others_entries_alone() -> None:
    secret = Secret()
    authorities = OwnAuthorities(secret, TERMS, lambda: secret.now)

    await authorities.current()
    before = dict(secret.entries or {})
    registered = await secret.controller().current()
    assert secret.entries is not None
    assert {key: secret.entries[key] for key in before} == before
    secret.now += 61 * DAY
    await authorities.current()

    assert secret.entries["ca.crt"] != before["ca.crt"]
    assert path_segments.read(secret.entries)[0].text == registered


async def test_authorities_are_made_where_the_secret_has_paths_alone() -> None:
    """As for a moment at the first start, and where certificates came from files before."""
    secret = Secret()
    await secret.controller().current()
    certificates = OwnCertificates(secret, ["localhost"], TERMS, lambda: secret.now)

    with pytest.raises(RetryError, match="a controller has yet to make the authorities"):
        await certificates.current()
    bundle = await OwnAuthorities(secret, TERMS, lambda: secret.now).current()

    assert (await certificates.current()).authority == bundle


async def test_of_two_that_write_at_once_one_reads_again() -> None:
    other = path_segments.rotate((), TERMS, now=datetime(2026, 7, 31, tzinfo=UTC))
    secret = Secret(meanwhile=[path_segments.encode(other)])

    assert await secret.controller().current() == other[0].text
    assert await secret.webhook().current() == (other[0].text,)


@pytest.mark.parametrize("entries", [None, {"ca.crt": b"of an earlier Muster, which knows no other entry"}])
async def test_what_is_registered_is_written_back_if_it_was_lost(entries: dict[str, bytes] | None) -> None:
    secret = Secret()
    controller, webhook = secret.controller(), secret.webhook()
    registered = await controller.current()
    await webhook.current()

    secret.entries = entries
    assert await webhook.current() == (registered,), "known, though it is not there"
    assert await controller.current() == registered
    assert await secret.controller(registered).current() == registered
    assert await secret.webhook().current() == (registered,)


@pytest.mark.parametrize("read", [lambda secret: secret.controller(), lambda secret: secret.webhook()])
async def test_a_list_that_cannot_be_read_is_named(
    read: Callable[[Secret], RegisteredSegment | SharedSegments],
) -> None:
    with pytest.raises(FixError, match=r"webhook\.secret: paths cannot be read; delete this entry"):
        await read(Secret(entries={"paths": b"what somebody wrote"})).current()


async def test_changes_are_used_and_failures_outlived() -> None:
    secret, used = Secret(), list[str]()
    controller = secret.controller()
    first = await controller.current()
    controller.every = 0.001
    secret.is_away, secret.now = True, secret.now + 60 * DAY

    async def use(segment: str) -> None:
        used.append(segment)

    with capture_logs() as logs:
        keeping = asyncio.create_task(rotation.keep(controller, first, use=use, failure="not renewed"))
        await until(lambda: bool(logs))
        secret.is_away = False
        await until(lambda: any("are written" in line["event"] for line in logs))
        secret.now += 3 * DAY
        await until(lambda: bool(used))
        keeping.cancel()

    assert logs[0]["event"] == "not renewed"
    assert [first, *used] == list(await secret.webhook().current())
    assert all(text not in str(logs) for text in (first, *used))
