"""One PostgreSQL server of our own: made, started, stopped, killed and started again; it cannot outlive us."""

import asyncio
import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import asyncpg

from tests import leash
from tests.controlplane.processes import LEASH, FreePorts, tail
from tests.postgres import programs

ROLE = "muster"
SECONDS_TO_START = 60.0
SECONDS_TO_END = 20.0
LINES_OF_LOG = 20

# A stranger has to show a password, so that tests can show a wrong one; the tests' own role need not.
RULES = """\
host all stranger 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
"""


class StartFailed(Exception):  # noqa: N818 - a fact, as in tests.controlplane
    """The server did not start; the message holds the end of its log."""


class Server:
    """A context: a fresh PostgreSQL on a free port of 127.0.0.1, under an unprivileged user, gone afterwards.

    fsync: whether commits are flushed to the disk; off is faster, and survives all but a crash of the machine. within:
    the folder that it keeps its own one in, which its user may enter.
    """

    def __init__(self, *, fsync: bool = False, within: Path | None = None) -> None:
        self._programs = programs.folder()
        self._fsync = fsync
        self._within = within
        self._user = _unprivileged()
        self._numbers = itertools.count(1)

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="muster-postgres-", dir=self._within))
        if self._user:
            shutil.chown(self._folder, self._user)
        # Isolated (-I -S): the leash must start fast and must not depend on the caller's environment. SIGQUIT first,
        # PostgreSQL's immediate shutdown: killed -9, it would leave its System V segment of shared memory behind.
        self._leash = subprocess.Popen(
            [sys.executable, "-I", "-S", str(LEASH), str(self._folder), str(os.getpid()), "SIGQUIT"],
            stdin=subprocess.PIPE,
            process_group=0,
        )
        try:
            self._make()
            self._start_somewhere()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def log(self) -> Path:
        return self._folder / "log"

    @property
    def port(self) -> int:
        return self._port

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def url(self, database: str) -> str:
        return f"postgresql://{ROLE}@127.0.0.1:{self._port}/{database}"

    def query(self, statement: str, *, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run statements as the superuser; return the rows of a single one."""
        return query(self.url(database), statement)

    def database(self, *, template: str | None = None) -> str:
        """Return the URL of a new database, empty or a copy of another one's."""
        name = f"ledger_{next(self._numbers)}"
        copied = f" TEMPLATE {template}" if template else ""
        self.query(f"CREATE DATABASE {name}{copied}")
        return self.url(name)

    def drop(self, url: str) -> None:
        """Remove a database, whoever is connected to it."""
        self.query(f"DROP DATABASE {name_in(url)} WITH (FORCE)")

    def start(self) -> None:
        """Start it, after a stop or a kill, on the port that it had. Raises StartFailed."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, "-p", str(self._port), *self._options()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
                **self._as_user(),
            )
        deadline = time.monotonic() + SECONDS_TO_START
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise StartFailed(f"PostgreSQL does not start:\n{tail(self.log, LINES_OF_LOG)}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Ask it to disconnect everybody and end (a fast shutdown)."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(SECONDS_TO_END)

    def kill(self) -> None:
        """Kill all of its processes -9, as a failing machine does."""
        self._process.kill()
        self._process.wait(SECONDS_TO_END)
        leash.end(lambda: leash.working_in(str(self._data)), (signal.SIGKILL,), SECONDS_TO_END)

    def speak_tls(self, certificate: str, key: str) -> None:
        """Offer TLS to new connections, by a certificate and its key in PEM."""
        for name, content in {"server.crt": certificate, "server.key": key}.items():
            path = self._data / name
            path.write_text(content)
            path.chmod(0o600)
            if self._user:
                shutil.chown(path, self._user)
        self._set("ssl", "on")

    def speak_plainly(self) -> None:
        """Offer no TLS any more."""
        self._set("ssl", "off")

    def _set(self, name: str, value: str) -> None:
        self.query(f"ALTER SYSTEM SET {name} = {value}")
        self._process.send_signal(signal.SIGHUP)
        while self.query(f"SHOW {name}") != [(value,)]:
            time.sleep(0.02)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop all of its processes where they are: connections stay open, and nobody answers."""
        processes = leash.working_in(str(self._data))
        for process in processes:
            leash.tell(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                leash.tell(process, signal.SIGCONT)

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _make(self) -> None:
        words = ["--auth=trust", f"--username={ROLE}", "--encoding=UTF8", "--locale=C", "--no-sync"]
        made = subprocess.run(
            [self._programs / "initdb", "-D", self._data, *words],
            capture_output=True,
            text=True,
            check=False,
            **self._as_user(),
        )
        if made.returncode:
            raise StartFailed(f"initdb: {made.stderr.strip()}")
        (self._data / "pg_hba.conf").write_text(RULES)

    def _start_somewhere(self) -> None:
        """Start on a free port. Between the pick and the server's bind another process can still take it."""
        for attempt in range(3):
            with FreePorts() as ports:
                self._port = ports.pick()
            try:
                return self.start()
            except StartFailed as error:
                if attempt == 2 or "Address already in use" not in str(error):
                    raise
        raise AssertionError("unreachable")

    def _options(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "shared_buffers": "32MB",
            "max_connections": "60",
            "fsync": "on" if self._fsync else "off",
            "full_page_writes": "on" if self._fsync else "off",
            "log_line_prefix": "%m %a ",
        }
        return [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]

    def _as_user(self) -> dict[str, Any]:
        user = {"user": self._user, "group": pwd.getpwnam(self._user).pw_gid, "extra_groups": []} if self._user else {}
        # Its working directory is how the leash knows what is ours.
        return {**user, "cwd": self._folder, "env": {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}}

    def _ready(self) -> bool:
        """Read what pg_ctl reads: line 1 of the file is the process, line 8 its state."""
        try:
            lines = (self._data / "postmaster.pid").read_text().split("\n")
        except FileNotFoundError:
            return False
        return len(lines) > 7 and lines[0] == str(self._process.pid) and lines[7].strip() == "ready"

    def _end(self) -> None:
        """Have the leash end whoever is left and remove the folder."""
        with self._leash as held:
            assert held.stdin is not None
            held.stdin.close()
            held.wait()
        if hasattr(self, "_process"):
            self._process.wait(SECONDS_TO_END)


def query(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements in one transaction each and return the rows of the last, from synchronous and async code alike."""
    # A thread of its own, since the caller's may run an event loop already.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, _queried(url, statements)).result()


def name_in(url: str) -> str:
    """Return the database's name in a URL."""
    return url.rpartition("/")[2]


async def _queried(url: str, statements: Sequence[str]) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(url)
    try:
        rows: list[tuple[Any, ...]] = []
        for statement in statements:
            rows = [tuple(row) for row in await connection.fetch(statement)]
        return rows
    finally:
        await connection.close()


def _unprivileged() -> str | None:
    """Return the user that a root has to become, since PostgreSQL refuses to run as root; None: stay who you are."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
