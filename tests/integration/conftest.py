"""Every database that a ledger may be kept in. A test that asks for `url` runs on each of them."""

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from admission.ledger.sql_ledger import SqlLedger
from tests.integration import ledgers
from tests.integration.kube.conftest import api, connection, kubeconfig
from tests.postgres import Server
from tests.unit.cli.conftest import muster

__all__ = ["api", "connection", "kubeconfig", "muster"]

Fresh = Callable[[], str]
"""Makes a database and returns its URL."""

DATABASES = ("sqlite", "postgresql")


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> str:
    """The kind of database under test: `sqlite` or `postgresql`."""
    return str(request.param)


@pytest.fixture
def new_ledger(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fresh]:
    """What makes one more ledger, empty and migrated; a property-based test needs one for each example."""
    if database == "sqlite":
        yield lambda: ledgers.a_sqlite_ledger(tmp_path)
    else:
        server: Server = request.getfixturevalue("postgres")
        with ledgers.dropped(server) as made:
            yield lambda: made(ledgers.template_in(server))


@pytest.fixture
def new_database(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fresh]:
    """What makes one more database without tables: a file that is not there yet, or a database in the server."""
    if database == "sqlite":
        numbers = itertools.count()
        yield lambda: ledgers.url_of(tmp_path / f"database{next(numbers)}.db")
    else:
        server: Server = request.getfixturevalue("postgres")
        with ledgers.dropped(server) as made:
            yield made


@pytest.fixture
def url(new_ledger: Fresh) -> str:
    """The URL of an empty ledger, in each kind of database."""
    return new_ledger()


@pytest.fixture
def durable_url(durable_postgres: Server) -> str:
    """The URL of an empty ledger in a PostgreSQL that flushes its commits and that no other test uses meanwhile."""
    return durable_postgres.database(template=ledgers.template_in(durable_postgres))


@pytest.fixture
async def ledger(url: str) -> AsyncIterator[SqlLedger]:
    """The ledger at `url`, open."""
    async with SqlLedger.open(url, ledgers.CLUSTER) as opened:
        yield opened
