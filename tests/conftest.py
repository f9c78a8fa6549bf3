"""What tests of every kind share.

How thoroughly laws are tried: HYPOTHESIS_PROFILE is `quick` for the fast loop, `thorough` in `make test`, `soak` in
`make soak`.
"""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests import postgres as postgresql
from tests import soaking

# No deadline: how long one example takes says more about the machine than about the law.
settings.register_profile("quick", max_examples=30, deadline=None)
settings.register_profile("thorough", max_examples=200, deadline=None)
settings.register_profile(soaking.PROFILE, max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


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


def started(*, fsync: bool) -> postgresql.Server:
    """Return a server to enter. Without PostgreSQL the test fails where it could be installed, and else skips."""
    try:
        return postgresql.Server(fsync=fsync)
    except postgresql.ProgramsMissing as missing:
        if postgresql.programs.must_be_here():
            pytest.fail(f"{missing}; `make deps` does so as root on Debian")
        pytest.skip(str(missing))
