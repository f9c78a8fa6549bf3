"""Only who leads works, and stops when the lease is lost or the ledger says that another leads."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from admission.controller import leadership
from admission.errors import ClusterUnavailableError, DeposedError, ForbiddenError


class Term:
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.lost = asyncio.Event()


class Election:
    """Always elects us, with a larger epoch each time."""

    def __init__(self) -> None:
        self.terms: list[Term] = []

    @asynccontextmanager
    async def lead(self) -> AsyncIterator[Term]:
        self.terms.append(Term(len(self.terms) + 1))
        yield self.terms[-1]


class Enough(BaseException):
    pass


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leadership, "PAUSE", 0.0)


async def test_a_lost_lease_ends_the_work_of_a_leader_and_a_new_term_starts_the_work_again() -> None:
    election, epochs, leads = Election(), list[int](), list[int | None]()

    async def work(epoch: int) -> None:
        epochs.append(epoch)
        if epoch == 3:
            raise Enough
        election.terms[-1].lost.set()
        await asyncio.Event().wait()

    with pytest.raises(Enough):
        await leadership.lead(election, work, on_change=leads.append)

    assert epochs == [1, 2, 3]
    assert leads == [1, None, 2, None, 3, None]


@pytest.mark.parametrize("error", [DeposedError("another leads"), ClusterUnavailableError("away")])
async def test_a_leader_that_is_deposed_or_cut_off_stands_for_election_again(error: Exception) -> None:
    election, epochs = Election(), list[int]()

    async def work(epoch: int) -> None:
        epochs.append(epoch)
        if epoch == 2:
            raise Enough
        raise ExceptionGroup("of a task group", [error])

    with pytest.raises(Enough):
        await leadership.lead(election, work, on_change=lambda _now: None)

    assert epochs == [1, 2]


async def test_a_leader_with_a_refused_request_logs_the_refusal_and_starts_again() -> None:
    """As by an API server that has yet to read its roles: no defect of ours, and nothing to end for."""
    epochs: list[int] = []

    async def work(epoch: int) -> None:
        epochs.append(epoch)
        if epoch == 2:
            raise Enough
        raise ExceptionGroup("of a task group", [ForbiddenError("list pods: forbidden (403)")])

    with capture_logs() as logs, pytest.raises(Enough):
        await leadership.lead(Election(), work, on_change=lambda _now: None)

    (told,) = [entry for entry in logs if entry["log_level"] == "warning"]
    assert (told["error"], "exc_info" in told) == ("list pods: forbidden (403)", False)


async def test_a_defect_is_logged_and_does_not_end_the_process() -> None:
    epochs: list[int] = []

    async def work(epoch: int) -> None:
        epochs.append(epoch)
        if epoch == 2:
            raise Enough
        raise ExceptionGroup("of a task group", [ZeroDivisionError()])

    with capture_logs() as logs, pytest.raises(Enough):
        await leadership.lead(Election(), work, on_change=lambda _now: None)

    assert epochs == [1, 2]
    assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == [
        "the controller failed and begins anew"
    ]
