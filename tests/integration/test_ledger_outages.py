"""The database is away, hangs, or the network fails: every call ends, and repeating it finds out what was done."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager

import asyncpg
import pytest
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from admission.errors import LedgerUnavailableError
from admission.ledger import sql_ledger
from admission.ledger.db import engines, migrations, postgres
from admission.ledger.sql_ledger import SqlLedger
from tests.integration import ledgers, proxies
from tests.integration.ledgers import CLUSTER, ON_POSTGRESQL, a_gang, a_grant, minutes
from tests.integration.proxies import Fault
from tests.postgres import Server, query

SHORT = 0.3


@contextmanager
def impatience(*, answer: float = SHORT) -> Iterator[None]:
    """Wait for tenths of seconds instead of seconds, while it is the waiting that is tested."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(engines, "ANSWER_SECONDS", answer)
        patched.setattr(postgres, "CONNECT_SECONDS", answer)
        patched.setattr(postgres, "FAREWELL_SECONDS", answer)
        patched.setattr(sql_ledger, "PATIENCE", answer)
        yield


@pytest.fixture
async def own(durable_url: str) -> AsyncIterator[SqlLedger]:
    async with SqlLedger.open(durable_url, CLUSTER) as opened:
        yield opened


async def transactions(ledger: SqlLedger) -> int:
    verification = await ledger.verify()
    assert verification.ok, verification.finding
    return verification.transactions


async def test_a_restart_of_postgresql_is_not_noticed(durable_postgres: Server, own: SqlLedger) -> None:
    await own.post(a_grant(), epoch=1)
    durable_postgres.stop()

    posting = asyncio.create_task(own.post(a_gang(at=minutes(1)), epoch=1))
    await asyncio.to_thread(durable_postgres.start)

    assert not (await posting).repeated
    assert await transactions(own) == 2


async def test_connections_that_the_server_has_closed_meanwhile_are_not_noticed(url: str, ledger: SqlLedger) -> None:
    await ledger.post(a_grant(), epoch=1)
    if ledgers.database_of(url) == "postgresql":
        query(url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'muster'")

    await ledger.post(a_gang(at=minutes(1)), epoch=1)

    assert await transactions(ledger) == 2


async def test_a_stopped_postgresql_is_unavailable_until_restarted(
    durable_postgres: Server, own: SqlLedger, durable_url: str
) -> None:
    await own.post(a_grant(), epoch=1)
    durable_postgres.stop()

    with impatience():
        for work in (own.post(a_gang(at=minutes(1)), epoch=1), own.load(), migrations.migrate(durable_url)):
            with pytest.raises(LedgerUnavailableError, match=r"does not answer: .*Connect call failed"):
                await work
        with pytest.raises(LedgerUnavailableError):
            async with SqlLedger.open(durable_url, CLUSTER):
                pass

    durable_postgres.start()
    assert not (await own.post(a_gang(at=minutes(1)), epoch=1)).repeated
    assert await transactions(own) == 2


async def test_a_hanging_postgresql_is_unavailable_until_resumed(
    durable_postgres: Server, own: SqlLedger, durable_url: str
) -> None:
    """Its connections stay open and it accepts new ones, but nobody answers."""
    await own.post(a_grant(), epoch=1)
    with impatience(), durable_postgres.paused():
        with pytest.raises(LedgerUnavailableError, match=r"does not answer: no connection within 0\.3 s"):
            await own.post(a_gang(at=minutes(1)), epoch=1)
        for work in (own.load(), own.fence(1), migrations.migrate(durable_url)):
            with pytest.raises(LedgerUnavailableError, match="does not answer"):
                await work
        with pytest.raises(LedgerUnavailableError, match="does not answer: no connection"):
            async with SqlLedger.open(durable_url, CLUSTER):
                pass

    await own.post(a_gang(at=minutes(1)), epoch=1)
    assert await transactions(own) == 2


async def test_a_ledger_closes_though_postgresql_hangs(durable_postgres: Server, durable_url: str) -> None:
    async with AsyncExitStack() as last, SqlLedger.open(durable_url, CLUSTER) as ledger:
        await ledger.post(a_grant(), epoch=1)
        last.enter_context(durable_postgres.paused())


async def test_a_call_cancelled_while_postgresql_hangs_ends(durable_postgres: Server, own: SqlLedger) -> None:
    await own.post(a_grant(), epoch=1)
    with impatience(), durable_postgres.paused():
        posting = asyncio.create_task(own.post(a_gang(at=minutes(1)), epoch=1))
        await asyncio.sleep(SHORT / 3)
        posting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await posting

    await own.post(a_gang(at=minutes(1)), epoch=1)
    assert await transactions(own) == 2


@ON_POSTGRESQL
async def test_a_call_cancelled_at_any_step_of_connecting_leaves_no_connection(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[asyncpg.Connection] = []
    made = asyncpg.connection.Connection.__init__

    def noted(connection: asyncpg.Connection, *arguments: object, **named: object) -> None:
        made(connection, *arguments, **named)
        opened.append(connection)

    monkeypatch.setattr(asyncpg.connection.Connection, "__init__", noted)
    for steps in range(200):
        async with engines.engine(make_url(url)) as engine:
            connecting_ = asyncio.create_task(connect(engine))
            for _ in range(steps):
                await asyncio.sleep(0.0001)
            connecting_.cancel()
            if not (await asyncio.gather(connecting_, return_exceptions=True))[0]:
                break
        assert all(connection.is_closed() for connection in opened)

    assert 1 < len(opened) < 200


async def connect(engine: AsyncEngine) -> None:
    async with engine.connect():
        pass


async def test_the_order_of_calls_is_kept_though_the_first_has_to_be_repeated(
    durable_postgres: Server, own: SqlLedger
) -> None:
    durable_postgres.stop()
    calls = [asyncio.create_task(own.post(a_grant(at=minutes(number)), epoch=1)) for number in range(5)]
    await asyncio.to_thread(durable_postgres.start)

    assert [posted.sequence for posted in await asyncio.gather(*calls)] == [1, 2, 3, 4, 5]


CUT = {
    "before the server read it": (Fault.LOSE_REQUEST, False),
    "before its answer arrived": (Fault.LOSE_ANSWER, True),
    "by a silence after it": (Fault.SWALLOW_ANSWER, True),
}


@ON_POSTGRESQL
@pytest.mark.parametrize(("fault", "repeated"), CUT.values(), ids=CUT)
async def test_a_connection_cut_in_the_middle_of_a_commit_posts_once(url: str, fault: Fault, repeated: bool) -> None:
    async with proxies.between(url) as (through, proxy), SqlLedger.open(through, CLUSTER) as ledger:
        await ledger.post(a_grant(), epoch=1)
        proxy.fail(fault)

        with impatience(answer=1.0):
            posted = await ledger.post_all([a_gang("one", at=minutes(1)), a_gang("two", at=minutes(1))], epoch=1)

        assert proxy.has_failed()
        assert [one.sequence for one in posted] == [2, 3]
        assert [one.repeated for one in posted] == [repeated, repeated]
        assert await transactions(ledger) == 3


@ON_POSTGRESQL
async def test_a_network_that_swallows_everything_is_an_absence(url: str) -> None:
    async with proxies.between(url) as (through, proxy), SqlLedger.open(through, CLUSTER) as ledger:
        await ledger.post(a_grant(), epoch=1)
        proxy.hangs = True
        with impatience(), pytest.raises(LedgerUnavailableError, match="no connection"):
            await ledger.post(a_gang(at=minutes(1)), epoch=1)
        proxy.hangs = False

        assert not (await ledger.post(a_gang(at=minutes(1)), epoch=1)).repeated


@ON_POSTGRESQL
async def test_a_row_that_another_session_holds_is_waited_for_and_then_reported(url: str, ledger: SqlLedger) -> None:
    await ledger.post(a_grant(), epoch=1)
    async with engines.engine(ledger._url) as engine, engine.begin() as other:
        await other.exec_driver_sql("SELECT * FROM clusters FOR UPDATE")
        with impatience(), pytest.raises(LedgerUnavailableError, match="no answer"):
            await ledger.post(a_gang(at=minutes(1)), epoch=1)

    assert not (await ledger.post(a_gang(at=minutes(1)), epoch=1)).repeated


@ON_POSTGRESQL
@pytest.mark.parametrize("state", ["40001", "40P01"])
async def test_a_serialisation_failure_is_not_noticed(url: str, ledger: SqlLedger, state: str) -> None:
    """PostgreSQL raises it from a trigger here, the first time that a transaction is written."""
    ledgers.run(
        url,
        "CREATE SEQUENCE attempts",
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF nextval('attempts') = 1 THEN RAISE EXCEPTION 'as if' USING ERRCODE = '{state}'; END IF;"
        " RETURN NEW; END $$",
        "CREATE TRIGGER failing BEFORE INSERT ON transactions FOR EACH ROW EXECUTE FUNCTION fail()",
    )

    assert not (await ledger.post(a_grant(), epoch=1)).repeated

    assert ledgers.rows(url, "SELECT last_value FROM attempts") == [(2,)]
    assert await transactions(ledger) == 1
