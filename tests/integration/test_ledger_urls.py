"""URLs of ledgers: what they may say, what is wrong with them, and that no message shows a password."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from admission.errors import FixError, LedgerCorruptError, LedgerUnavailableError, LedgerVersionError
from admission.ledger.db import database_url, engines, errors, migrations
from admission.ledger.sql_ledger import SqlLedger
from tests.integration import ledgers
from tests.integration.ledgers import CLUSTER, ON_POSTGRESQL
from tests.postgres import Server

SECRET = "se/cr:et"
QUOTED = "se%2Fcr%3Aet"


async def opened(url: str) -> None:
    async with SqlLedger.open(url, CLUSTER):
        pass


async def asked(url: str, statement: str) -> object:
    """Return the one value that a statement yields on a connection that Muster has opened."""
    async with engines.engine(database_url.parsed(url)) as engine, engines.reading(engine) as connection:
        return (await connection.exec_driver_sql(statement)).scalar_one()


NO_LEDGER = {
    "no URL": ("ledger.db", "'ledger.db' is not a database URL such as sqlite"),
    "another database": ("mysql://host/db", "not in mysql"),
    "memory": ("sqlite://", "needs a file"),
    "memory by name": ("sqlite:///:memory:", "needs a file"),
    "a port that is none": (
        f"postgresql://muster:{SECRET}@db:port/muster",
        r"'postgresql://\*\*\*@db:port/muster' is not",
    ),
    "two hosts as libpq has them": ("postgresql://a:1,b:2/muster", "is not a database URL"),
    "a time-out that is none": ("postgresql://db/muster?connect_timeout=soon", "'soon', not a number of seconds"),
}


@pytest.mark.parametrize(("bad", "said"), NO_LEDGER.values(), ids=NO_LEDGER)
async def test_a_url_that_names_no_ledger_is_refused(bad: str, said: str) -> None:
    for work in (opened, migrations.migrate):
        with pytest.raises(FixError, match=said) as raised:
            await work(bad)
        assert raised.value.__cause__ is None or "secret" not in str(raised.value.__cause__)


SHOWN = {
    f"postgresql://muster:{QUOTED}@db/muster": "postgresql://muster:***@db/muster",
    f"postgres://muster:{QUOTED}@db:5433/muster": "postgresql://muster:***@db:5433/muster",
    f"postgresql+psycopg://db/muster?password={QUOTED}&sslmode=require": "postgresql://db/muster?sslmode=require",
    "postgresql:///muster?host=/run/postgresql": "postgresql:///muster?host=%2Frun%2Fpostgresql",
    "sqlite:////var/lib/muster/ledger.db": "/var/lib/muster/ledger.db",
}


@pytest.mark.parametrize(("url", "shown"), SHOWN.items())
def test_messages_name_a_database_without_its_secrets(url: str, shown: str) -> None:
    assert database_url.redacted(database_url.parsed(url)) == shown


@pytest.fixture
def stranger(postgres: Server) -> str:
    """A role that has to show a password, and owns nothing."""
    if not postgres.query("SELECT 1 FROM pg_roles WHERE rolname = 'stranger'"):
        postgres.query(f"CREATE ROLE stranger LOGIN PASSWORD '{SECRET}'")
    return "stranger"


def as_user(url: str, user: str, password: str) -> str:
    return url.replace("muster@", f"{user}:{password}@")


@ON_POSTGRESQL
async def test_a_password_with_special_characters_is_quoted(url: str, stranger: str) -> None:
    ledgers.run(url, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO stranger")

    await opened(as_user(url, stranger, QUOTED))


@ON_POSTGRESQL
async def test_a_wrong_password_is_named_and_not_shown(url: str, stranger: str) -> None:
    wrong = as_user(url, stranger, "se%2Fcret")
    for work in (opened, migrations.migrate):
        with pytest.raises(FixError, match='authentication failed for user "stranger": correct the user') as raised:
            await work(wrong)
        assert "cret" not in str(raised.value)


@ON_POSTGRESQL
async def test_a_database_that_is_not_there_is_named(url: str) -> None:
    for work in (opened, migrations.migrate):
        with pytest.raises(FixError, match='database "nowhere" does not exist: create the database'):
            await work(url.rpartition("/")[0] + "/nowhere")


async def test_a_database_without_tables_is_to_be_migrated(postgres: Server) -> None:
    with (
        ledgers.dropped(postgres) as made,
        pytest.raises(LedgerVersionError, match="has no tables yet: run `muster ledger migrate`"),
    ):
        await opened(made())


async def test_a_role_that_may_not_create_tables_gets_an_error_that_says_so(postgres: Server, stranger: str) -> None:
    with ledgers.dropped(postgres) as made:
        url = made()
        ledgers.run(url, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")

        with pytest.raises(FixError, match="permission denied for schema public: grant it, or make the URL's user"):
            await migrations.migrate(as_user(url, stranger, QUOTED))


@ON_POSTGRESQL
async def test_a_role_that_may_not_read_is_told_so(url: str, stranger: str) -> None:
    with pytest.raises(FixError, match="permission denied for table alembic_version: grant it"):
        await opened(as_user(url, stranger, QUOTED))


@ON_POSTGRESQL
async def test_a_parameter_that_nobody_knows_is_named(url: str) -> None:
    with pytest.raises(FixError, match='parameter "sslmod": correct the parameters'):
        await opened(f"{url}?sslmod=require")
    with pytest.raises(FixError, match="`sslmode` parameter must be one of: disable"):
        await opened(f"{url}?sslmode=please")


async def test_a_host_that_is_nowhere_is_away() -> None:
    with pytest.raises(LedgerUnavailableError, match=r"postgresql://muster@nowhere\.invalid/muster does not answer"):
        await opened("postgresql://muster@nowhere.invalid/muster")


SETTINGS = {
    "application_name": "muster",
    "synchronous_commit": "on",
    "lock_timeout": "5s",
    "transaction_isolation": "repeatable read",
}


@ON_POSTGRESQL
@pytest.mark.parametrize(("name", "value"), SETTINGS.items(), ids=SETTINGS)
async def test_a_session_has_muster_s_settings_whatever_the_server_s_are(url: str, name: str, value: str) -> None:
    ledgers.run(url, f"ALTER DATABASE {url.rpartition('/')[2]} SET synchronous_commit = off")

    assert await asked(url, f"SHOW {name}") == value


@ON_POSTGRESQL
async def test_the_url_may_name_the_application(url: str) -> None:
    assert await asked(f"{url}?application_name=muster-east", "SHOW application_name") == "muster-east"


@ON_POSTGRESQL
@pytest.mark.parametrize("state", ["XX001", "XX002"])
def test_damage_on_the_server_is_for_a_person(state: str, url: str) -> None:
    with pytest.raises(LedgerCorruptError, match=r"damaged on the server's disk .*: restore a backup of the database"):
        asyncio.run(raising(url, state))


async def raising(url: str, state: str) -> None:
    parsed = database_url.parsed(url)
    with errors.translated(parsed):
        async with engines.engine(parsed) as engine, engines.writing(engine) as connection:
            await connection.exec_driver_sql(f"DO $$ BEGIN RAISE EXCEPTION 'page' USING ERRCODE = '{state}'; END $$")


# TLS.


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for `localhost`, signed by itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "certificate", folder / "key"


@pytest.fixture
def tls_url(postgres: Server, authority: tuple[Path, Path]) -> Iterator[str]:
    """A ledger in a server that speaks TLS for the length of a test; the host is `localhost`."""
    certificate, key = (path.read_text() for path in authority)
    postgres.speak_tls(certificate, key)
    with ledgers.dropped(postgres) as made:
        yield made(ledgers.template_in(postgres)).replace("127.0.0.1", "localhost")
    postgres.speak_plainly()


IS_ENCRYPTED = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"


@pytest.mark.parametrize("parameters", ["sslmode=require", "ssl=require", "sslmode=verify-full&sslrootcert={}", ""])
async def test_tls_is_asked_for_as_libpq_does(tls_url: str, authority: tuple[Path, Path], parameters: str) -> None:
    assert await asked(f"{tls_url}?{parameters.format(authority[0])}", IS_ENCRYPTED) is True


async def test_a_server_whose_certificate_is_not_for_its_name_is_not_trusted(
    tls_url: str, authority: tuple[Path, Path]
) -> None:
    url = tls_url.replace("localhost", "127.0.0.1")
    with pytest.raises(FixError, match=r"certificate that is not trusted .*: give the authority's file as sslrootcert"):
        await opened(f"{url}?sslmode=verify-full&sslrootcert={authority[0]}")


@ON_POSTGRESQL
async def test_a_server_that_speaks_no_tls_is_not_taken_instead(url: str) -> None:
    with pytest.raises(FixError, match="rejected SSL upgrade"):
        await opened(f"{url}?sslmode=require")
