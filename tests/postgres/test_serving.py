"""The tests' own PostgreSQL leaves nothing behind, however its owner ends, and its absence is not overlooked."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import conftest, leash, packages
from tests.postgres import ProgramsMissing, Server, programs

ROOT = Path(__file__).parents[2]
OWNER = """
import sys, time
from tests.postgres import Server
with Server() as server:
    print(server.log.parent, flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_of_a_server_whose_owner_was_killed(number: signal.Signals) -> None:
    command = [sys.executable, "-c", OWNER]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        assert leash.working_in(str(folder))

        owner.send_signal(number)
        owner.wait()

    while folder.exists():  # the test's own time-out is the limit
        time.sleep(0.05)
    assert leash.working_in(str(folder)) == []


def test_a_server_keeps_what_it_has_over_a_kill(durable_postgres: Server) -> None:
    durable_postgres.query("CREATE TABLE IF NOT EXISTS kept (number int)")
    durable_postgres.query("INSERT INTO kept VALUES (1)")

    durable_postgres.kill()
    durable_postgres.start()

    assert durable_postgres.query("SELECT number FROM kept LIMIT 1") == [(1,)]


def test_postgresql_does_not_run_as_root(postgres: Server) -> None:
    assert (postgres.log.parent / "data").stat().st_uid != 0
    assert os.geteuid() == 0 or (postgres.log.parent / "data").stat().st_uid == os.geteuid()


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_candidates", lambda: iter(()))
    monkeypatch.delenv("CI", raising=False)


def test_without_postgresql_a_test_says_what_to_install_and_skips(
    nowhere: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "may_be_installed", lambda: False)

    with pytest.raises(pytest.skip.Exception, match="apt-get install postgresql"):
        conftest.started(fsync=False)


def test_without_postgresql_a_test_fails_in_ci(nowhere: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "may_be_installed", lambda: False)
    monkeypatch.setenv("CI", "1")

    with pytest.raises(pytest.fail.Exception, match="are not found: install PostgreSQL"):
        conftest.started(fsync=False)


def test_without_postgresql_a_test_fails_where_make_deps_installs_it(
    nowhere: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "may_be_installed", lambda: True)

    with pytest.raises(pytest.fail.Exception, match="make deps"):
        conftest.started(fsync=False)


def test_deps_says_what_to_install_where_it_may_not(
    nowhere: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(packages, "may_be_installed", lambda: False)

    programs.install()

    assert "apt-get install postgresql" in capsys.readouterr().err


def test_deps_installs_without_a_cluster_for_the_machine(
    nowhere: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A program of that name writes down what it is asked, and what pg_createcluster would read meanwhile."""
    configuration, said = tmp_path / "createcluster.d" / "muster.conf", tmp_path / "said"
    apt_get = tmp_path / "apt-get"
    apt_get.write_text(f'#!/bin/sh\necho "$@" >> {said}\ncat {configuration} >> {said}\n')
    apt_get.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(packages, "may_be_installed", lambda: True)
    monkeypatch.setattr(programs, "NO_CLUSTER", configuration)

    with pytest.raises(ProgramsMissing):  # it has installed nothing
        programs.install()

    update, no_cluster, install, again = said.read_text().splitlines()
    assert update.endswith("update")
    assert install.endswith("install --yes --no-install-recommends postgresql")
    assert no_cluster == again == "create_main_cluster = false"
    assert not configuration.exists()
