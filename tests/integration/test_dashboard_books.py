"""The books as the dashboard reads them, in each kind of database."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import pairwise
from random import Random

import pytest

from admission.accounting.books import Account, Book
from admission.api.muster.ledger_entries import Bucket, Kind, Waited, WaitingHour, WaitingShape
from admission.api.values.names import QueueName
from admission.dashboard.ledger_queries import Extent, GangSearch, Grouping, Search, Step, Window
from admission.dashboard_app import Ledger
from admission.errors import DeposedError, FixError, LedgerCorruptError, LedgerUnavailableError
from admission.ledger.db import migrations
from admission.ledger.journal import base
from admission.ledger.reports import usage_report
from admission.ledger.sql_ledger import SqlLedger
from tests.bench import years
from tests.integration import ledgers
from tests.integration.conftest import Fresh
from tests.integration.ledgers import AT, CLUSTER, GPU, ON_POSTGRESQL, QUEUE, minutes
from tests.postgres import Server

DAY = Window(AT - timedelta(hours=12), AT + timedelta(hours=12))


async def test_of_what_waited_only_the_longest_is_read(url: str, ledger: SqlLedger) -> None:
    await ledger.fence(1)
    first, day = AT.replace(hour=0, minute=0, second=0, microsecond=0), timedelta(days=1)
    shapes = [
        WaitingShape(QueueName(queue), namespace, first + at * day, shape, seconds)
        for queue, namespace, at, shape, seconds in (
            ("q", "a", 0, "long", 50),
            ("q", "b", 0, "long", 30),
            ("q", "a", 1, "long", 2**40),
            ("r", "a", 1, "long", 90),
            ("q", "a", 1, "short", 2),
            ("q", "", 1, "", 10**6),
            ("q", "a", 2, "short", 10**6),
        )
    ]
    await ledger.write_waiting(Waited(shapes=shapes), epoch=1, keep_from=first)

    async with opened(url) as books:
        window = Window(first, first + 2 * day)
        found, both = await books.waited(window, most=2), await books.waited(window, most=9)
        from_noon = await books.waited(Window(first + day / 2, first + 2 * day), most=9)
        from_next = await books.waited(Window(first + day, first + 2 * day), most=9)

    assert from_noon == both, "shapes are kept by day, so the day in which a time begins counts"
    assert [one.seconds for one in from_next] == [2**40, 90, 2]
    assert (await ledger.waiting(first + day / 2, first + day)).shapes == shapes[:2]
    assert [tuple(one) for one in found] == [("q", "long", 2**40 + 80), ("r", "long", 90)]
    assert [tuple(one) for one in both[2:]] == [("q", "short", 2)]


@pytest.fixture
async def books(url: str, ledger: SqlLedger) -> AsyncIterator[Ledger]:
    """The history of `ledgers`, as the pages read it."""
    await ledger.post_all(ledgers.a_history(), epoch=1)
    async with opened(url) as reading:
        yield reading


class opened:  # noqa: N801 - used as the function that it stands for
    """A ledger that is kept open meanwhile."""

    def __init__(self, url: str, cluster: str = CLUSTER) -> None:
        self.ledger = Ledger(url, cluster)

    async def __aenter__(self) -> Ledger:
        self._keeping = asyncio.create_task(self.ledger.keep())
        for _ in range(2_000):
            try:
                await self.ledger.extent()
                break
            except LedgerUnavailableError:
                await asyncio.sleep(0.01)
        return self.ledger

    async def __aexit__(self, *_: object) -> None:
        self._keeping.cancel()
        await asyncio.gather(self._keeping, return_exceptions=True)


async def test_the_newest_transactions_come_first_and_in_pages(books: Ledger) -> None:
    first = await books.search(Search(window=DAY, limit=4))
    rest = await books.search(Search(window=DAY, limit=4, before=first[-1].sequence))

    assert [one.sequence for one in (*first, *rest)] == [6, 5, 4, 3, 2, 1]
    assert [one.entry for one in (*first, *rest)][::-1] == ledgers.a_history()


CONDITIONS = {
    "a kind": (Search(window=DAY, kind=Kind.SETTLE), [4]),
    "a part of a gang's name": (Search(window=DAY, gang="s/tw"), [6, 3]),
    "a gang": (Search(window=DAY, gang_uid="one"), [5, 4, 2]),
    "a namespace": (Search(window=DAY, namespace="ns"), [6, 5, 4, 3, 2]),
    "a namespace that begins alike": (Search(window=DAY, namespace="n"), []),
    "a wildcard is no wildcard": (Search(window=DAY, gang="%"), []),
    "a queue": (Search(window=DAY, queue=QUEUE, kind=Kind.GRANT), [1]),
    "another queue": (Search(window=DAY, queue="team-b"), []),
    "another user": (Search(window=DAY, user="ada"), []),
    "a time": (Search(window=Window(minutes(2), minutes(4))), [4, 3]),
}


@pytest.mark.parametrize(("search", "found"), CONDITIONS.values(), ids=CONDITIONS)
async def test_transactions_are_found_by_each_of_their_fields(books: Ledger, search: Search, found: list[int]) -> None:
    assert [one.sequence for one in await books.search(search)] == found


GANGS = {
    "by its UID, whatever its name and since when": (GangSearch(uid="one", gang="ns/two", since=minutes(9)), [5, 4, 2]),
    "the latest": (GangSearch(uid="one", gang="", since=AT, limit=2), [5, 4]),
    "by its name, if the books know it by another UID": (GangSearch(uid="?", gang="ns/two", since=AT), [6, 3]),
    "by its name since a time": (GangSearch(uid="?", gang="ns/two", since=minutes(3)), [6]),
    "by its name after all of them": (GangSearch(uid="?", gang="ns/two", since=minutes(99)), []),
    "not by a part of its name": (GangSearch(uid="?", gang="ns/tw", since=AT), []),
}


@pytest.mark.parametrize(("search", "found"), GANGS.values(), ids=GANGS)
async def test_the_transactions_of_a_gang_are_found(books: Ledger, search: GangSearch, found: list[int]) -> None:
    assert [one.sequence for one in await books.of_gang(search)] == found


@pytest.mark.parametrize("minute", [-1, 0, 1, 2, 3, 4, 5, 60])
async def test_the_past_is_as_the_entries_up_to_then_say(books: Ledger, minute: int) -> None:
    expected = Book.replay(entry for entry in ledgers.a_history() if entry.at <= minutes(minute))

    found = await books.at(minutes(minute))

    assert found.placements == expected.placements
    assert {of: amount for of, amount in found.balances.items() if amount} == {
        of: amount for of, amount in expected.balances.items() if amount
    }


async def test_moments_may_be_asked_for_in_any_order(books: Ledger) -> None:
    used = Account(QUEUE, GPU, Bucket.USED)

    found = [(await books.at(minutes(minute))).balances.get(used, 0) for minute in (5, 2, 3, 4, 1, 3)]

    assert found == [3, 0, 6, 3, 0, 6]


async def test_a_past_that_was_tampered_with_is_not_shown(url: str, books: Ledger) -> None:
    ledgers.tamper(url, "UPDATE transactions SET reason = 'because' WHERE sequence = 3")

    with pytest.raises(LedgerCorruptError, match=r"after transaction \d.*muster ledger verify"):
        await books.at(minutes(5))

    assert (await books.at(minutes(0))).sequence == 1


async def test_a_remembered_ledger_state_is_replayed_again_when_the_database_was_changed(
    url: str, books: Ledger
) -> None:
    await books.at(minutes(2))
    ledgers.tamper(url, "UPDATE transactions SET reason = 'because' WHERE sequence = 4")

    with pytest.raises(LedgerCorruptError):
        await books.at(minutes(5))


async def test_a_statement_lists_the_movements_of_a_single_queue(books: Ledger) -> None:
    found = await books.statement(QUEUE, DAY)
    other = await books.statement(QueueName("team-b"), DAY)

    assert [line.sequence for line in found.lines] == [1, 2, 3, 4, 5, 6]
    assert found.closing[GPU].used == 3
    assert other.lines == []


async def test_use_is_counted_by_period_and_group(books: Ledger) -> None:
    window = Window(minutes(0), minutes(120))

    found = await books.use(Grouping.QUEUE, window, Step.HOUR, "")

    assert [period.start for period in found.periods] == [minutes(0), minutes(60)]
    # Two claims with a device each from minute 3 on, one of them until minute 4.
    assert found.amounts == {QUEUE: [57 * 60 + 60, 3600]}


@pytest.mark.parametrize("grouping", [Grouping.QUEUE, Grouping.CLASS, Grouping.NAMESPACE, Grouping.USER])
@pytest.mark.parametrize("step", [Step.DAY, Step.HOUR])
async def test_usage_by_period_equals_the_report_of_each_period(
    new_database: Fresh, grouping: Grouping, step: Step
) -> None:
    url = new_database()
    await migrations.migrate(url)
    await years.fill(url, 4_000)
    drawn = Random(f"{grouping} {step}")  # noqa: S311 - chooses a time
    start = years.START + timedelta(seconds=drawn.randrange(200 * 86_400))
    window = Window(start, start + timedelta(seconds=drawn.randrange(2, 9) * (86_400 if step is Step.DAY else 3_600)))

    async with opened(url, years.CLUSTER) as books:
        found = await books.use(grouping, window, step, "")
        queues = sorted((await books.use(Grouping.QUEUE, window, step, "")).amounts)
        chosen = drawn.choice(queues)
        of_one = await books.use(grouping, window, step, chosen)

    assert (found.periods[0].start, found.periods[-1].end) == window
    assert all(one.end == after.start for one, after in pairwise(found.periods))
    assert of_one.periods == found.periods
    keys = [usage_report.Key.QUEUE, usage_report.Key(grouping.value)]
    async with SqlLedger.open(url, years.CLUSTER) as ledger, ledger.snapshot() as connection:
        for at, period in enumerate(found.periods):
            within = base.Window(*period)
            report = await usage_report.report(connection, [years.CLUSTER], keys, within, lambda *_: None)
            for series, only in ((found, queues), (of_one, [chosen])):
                used = {group: of[at] for group, of in series.amounts.items() if of[at]}
                expected = Counter[str]()
                for (queue, name), use in report.rows.items():
                    expected[name] += use.devices if queue in only else 0
                assert used == +expected


async def test_use_of_another_queue_is_none(books: Ledger) -> None:
    found = await books.use(Grouping.NAMESPACE, Window(minutes(0), minutes(60)), Step.HOUR, "team-b")

    assert found.amounts == {}


async def test_the_books_tell_of_the_time_up_to_the_latest_entry(books: Ledger) -> None:
    assert await books.extent() == Extent(None, minutes(5))


@ON_POSTGRESQL
async def test_a_user_who_may_only_read_is_shown_the_books_and_changes_nothing(
    url: str, books: Ledger, postgres: Server
) -> None:
    if not postgres.query("SELECT 1 FROM pg_roles WHERE rolname = 'reader'"):
        postgres.query("CREATE ROLE reader LOGIN")
    ledgers.run(url, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    theirs = url.replace("muster@", "reader@")

    async with opened(theirs) as reading:
        assert await reading.extent() == await books.extent()
        assert await reading.search(Search(window=DAY, limit=9)) == await books.search(Search(window=DAY, limit=9))
        assert await reading.statement(QUEUE, DAY) == await books.statement(QUEUE, DAY)
        assert (await reading.at(minutes(5))).balances == (await books.at(minutes(5))).balances
        use = (Grouping.QUEUE, Window(minutes(0), minutes(120)), Step.HOUR, "")
        assert await reading.use(*use) == await books.use(*use)

    async with SqlLedger.open(theirs, CLUSTER) as ledger:
        with pytest.raises(FixError, match="permission denied"):
            await ledger.post_all([ledgers.a_grant(at=minutes(9))], epoch=1)


async def test_a_missing_ledger_is_reported_with_the_remedy(
    new_database: Fresh,
) -> None:
    books = Ledger(new_database(), CLUSTER)
    keeping = asyncio.create_task(books.keep())
    try:
        async with asyncio.timeout(60):
            while "being opened" in (said := await _trouble(books)):  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    assert "muster ledger migrate" in said


async def _trouble(books: Ledger) -> str:
    with pytest.raises(LedgerUnavailableError) as caught:
        await books.extent()
    return str(caught.value)


async def test_waiting_is_shown_by_period_and_queue(url: str, ledger: SqlLedger) -> None:
    hour = timedelta(hours=1)
    start = AT.replace(minute=0, second=0, microsecond=0)
    other = QueueName("other")
    written = [WaitingHour(QUEUE, start, 60), WaitingHour(other, start, 7), WaitingHour(QUEUE, start + 2 * hour, 90)]
    await ledger.write_waiting(Waited([WaitingHour(QUEUE, start, 1)]), epoch=1, keep_from=start)
    await ledger.write_waiting(Waited(written), epoch=1, keep_from=start)

    async with opened(url) as reading:
        window = Window(start + timedelta(minutes=30), start + 3 * hour)
        every = await reading.waiting(window, Step.HOUR, "")
        own = await reading.waiting(window, Step.DAY, QUEUE)

    assert [period.start for period in every.periods] == [window.start, start + hour, start + 2 * hour]
    assert every.amounts == {QUEUE: [60, 0, 90], other: [7, 0, 0]}
    assert own.amounts == {QUEUE: [150]}
    await ledger.write_waiting(Waited(), epoch=1, keep_from=start + hour)
    assert await ledger.waiting(start, start + 3 * hour) == Waited(written[2:], [])


async def test_a_deposed_leader_writes_no_waiting(ledger: SqlLedger) -> None:
    await ledger.fence(2)

    with pytest.raises(DeposedError):
        await ledger.write_waiting(Waited([WaitingHour(QUEUE, AT, 60)]), epoch=1, keep_from=AT)

    assert await ledger.waiting(AT, AT + timedelta(hours=1)) == Waited([], [])
