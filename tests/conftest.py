"""What tests of every kind share.

How thoroughly laws are tried: HYPOTHESIS_PROFILE is `quick` where nothing else is said, `thorough` in `make test`,
`soak` in `make soak`. Unit tests have no laws.
"""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from xdist.remote import Producer

from tests import lanes, packages, postgres as postgresql, soaking

# No deadline: how long one example takes says more about the machine than about the law.
settings.register_profile("quick", max_examples=30, deadline=None)
# What passed before passes again, so that a change is judged by itself; new examples are for the other two to find.
settings.register_profile("thorough", max_examples=50, deadline=None, derandomize=True)
settings.register_profile(soaking.PROFILE, max_examples=1000, deadline=None)
# For `make mutants`: the same examples for every mutant, and none shrunk, as the first that fails is enough.
settings.register_profile(
    "mutants",
    max_examples=30,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_configure(config: pytest.Config) -> None:
    """Let the processes that have a control plane go before, where there are some."""
    worker = getattr(config, "workerinput", {}).get("workerid")
    if worker and "e2e" in (config.option.markexpr or ""):
        lanes.give_way(worker)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> lanes.Lanes | None:
    """Share the tests out by lanes where `make test` asks for files."""
    return lanes.Lanes(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """Keep what the collection made, which is there until the end, out of each garbage collection that follows.

    These come more seldom than Python's own, which take some 6 % of the processor time of the unit tests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Collect the garbage of a file at its end, so that what it left open is told of it and not of another."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[postgresql.Server]:
    """One PostgreSQL for all tests of the run that do not kill it; each takes a database of its own."""
    with started(fsync=False) as server:
        yield server


@pytest.fixture(scope="session")
def _durable_postgres() -> Iterator[postgresql.Server]:
    with started(fsync=True) as server:
        yield server


@pytest.fixture
def durable_postgres(_durable_postgres: postgresql.Server) -> Iterator[postgresql.Server]:
    """A PostgreSQL that flushes every commit to the disk, for a test to stop, kill and start again."""
    yield _durable_postgres
    if not _durable_postgres.runs:
        _durable_postgres.start()


def started(*, fsync: bool, within: Path | None = None) -> postgresql.Server:
    """Return a server to enter, whose files are within a folder.

    Without PostgreSQL the test fails where it could be installed, and else skips.
    """
    try:
        return postgresql.Server(fsync=fsync, within=within)
    except postgresql.ProgramsMissing as missing:
        if packages.must_be_here():
            pytest.fail(f"{missing}; `make deps` does so as root on Debian")
        pytest.skip(str(missing))
