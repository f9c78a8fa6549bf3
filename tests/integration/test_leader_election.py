"""Leadership against a fake API server, with durations of milliseconds."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from admission.kube.client.connection import Connection
from admission.kube.leader_election import Durations, Lease, Term
from tests.integration.kube.fake_api import Asked, FakeApi, status

LEASES = "/apis/coordination.k8s.io/v1/leases"
PATH = "/apis/coordination.k8s.io/v1/namespaces/muster/leases/muster-controller"
QUICK = Durations(lease=0.5, renew=0.3, retry=0.02)
STEADY = Durations(lease=9, renew=6, retry=0.02)
"""For who is to go on leading, however busy the machine is."""


@pytest.fixture
def candidate(connection: Connection) -> Callable[[], Lease]:
    return lambda: Lease(connection, namespace="muster", durations=QUICK)


@pytest.fixture
def steady(connection: Connection) -> Lease:
    return Lease(connection, namespace="muster", durations=STEADY)


@asynccontextmanager
async def leading(lease: Lease) -> AsyncIterator[Any]:
    async with asyncio.timeout(30), lease.lead() as term:
        yield term


async def renewed(term: Term) -> None:
    """Wait until a term is renewed once more."""
    before = term.deadline
    while term.deadline == before:  # noqa: ASYNC110 - nothing tells of renewals
        await asyncio.sleep(0.01)


def spec(api: FakeApi) -> dict[str, Any]:
    return dict(api.objects[LEASES]["muster/muster-controller"]["spec"])


def killed(api: FakeApi) -> int:
    """Make the lease look like that of a holder that is no more; return its epoch."""
    held = {"holderIdentity": "dead", "leaseDurationSeconds": 1, "renewTime": "2026-01-01T00:00:00.000000Z"}
    api.put(
        LEASES,
        {"metadata": {"name": "muster-controller", "namespace": "muster"}, "spec": {**held, "leaseTransitions": 6}},
    )
    return 7


async def test_a_lease_that_is_not_there_is_made(api: FakeApi, candidate: Callable[[], Lease]) -> None:
    lease = candidate()
    async with leading(lease) as term:
        assert spec(api)["holderIdentity"] == lease.identity
        assert spec(api)["leaseDurationSeconds"] == 1
        assert term.epoch == spec(api)["leaseTransitions"] + 1
        assert term.leads


async def test_a_leader_renews_its_lease_during_its_term(api: FakeApi, steady: Lease) -> None:
    async with leading(steady) as term:
        for _ in range(3):
            before = spec(api)["renewTime"]
            await renewed(term)
            assert spec(api)["renewTime"] > before
        assert term.leads
        assert not term.lost.is_set()


async def test_a_second_candidate_does_not_lead_while_the_lease_is_held(candidate: Callable[[], Lease]) -> None:
    async with leading(candidate()):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2), candidate().lead():
                pytest.fail("two lead")


async def test_a_lease_that_was_given_back_passes_at_once_with_the_next_epoch(
    api: FakeApi, candidate: Callable[[], Lease]
) -> None:
    async with leading(candidate()) as first:
        pass
    assert first.lost.is_set()
    assert not spec(api).get("holderIdentity")

    asked = len(api.asked)
    async with leading(candidate()) as second:
        assert [one.method for one in api.asked[asked:]] == ["GET", "PATCH"], "it looks once"
        assert second.epoch == first.epoch + 1


async def test_the_lease_of_a_leader_that_was_killed_passes_after_its_time(
    api: FakeApi, candidate: Callable[[], Lease]
) -> None:
    epoch = killed(api)
    loop = asyncio.get_running_loop()
    began = loop.time()

    async with leading(candidate()) as term:
        assert loop.time() - began >= 1.0, "its promise of one second counts from when we saw it, whatever it says"
        assert term.epoch == epoch + 1


async def test_a_candidate_tries_for_the_lease_when_it_expires_and_not_only_at_its_next_retry(
    api: FakeApi, connection: Connection
) -> None:
    epoch = killed(api)
    patient = Lease(connection, namespace="muster", durations=Durations(lease=300, renew=200, retry=120))

    async with asyncio.timeout(60), patient.lead() as term:
        assert term.epoch == epoch + 1


async def test_a_lease_that_somebody_deleted_is_lost_and_begins_again_with_a_larger_epoch(
    api: FakeApi, candidate: Callable[[], Lease]
) -> None:
    lease = candidate()
    async with leading(lease) as first:
        api.delete(LEASES, "muster/muster-controller")
        await first.lost.wait()
    async with leading(lease) as second:
        assert second.epoch > first.epoch


async def test_a_leader_whose_lease_is_taken_by_another_loses_its_term(
    api: FakeApi, candidate: Callable[[], Lease]
) -> None:
    async with leading(candidate()) as term:
        killed(api)
        async with asyncio.timeout(30):
            await term.lost.wait()
        assert not term.leads
    assert spec(api)["holderIdentity"] == "dead", "what is not ours is not given back"


async def test_a_leader_that_cannot_renew_is_lost_before_others_may_lead(
    api: FakeApi, candidate: Callable[[], Lease]
) -> None:
    loop = asyncio.get_running_loop()
    async with leading(candidate()) as term:
        await api.stop()
        began = loop.time()
        await term.lost.wait()
        assert term.deadline <= began + QUICK.renew < began + QUICK.lease
        assert not term.leads
    await api.start()
    async with leading(candidate()) as again:
        assert again.epoch == term.epoch + 1


async def test_a_leader_whose_machine_stalled_during_a_renewal_loses_its_term(
    candidate: Callable[[], Lease], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request and the term time out at once, and aiohttp takes both cancellations for its own."""
    answer = FakeApi._patch

    def late(api: FakeApi, asked: Asked) -> web.Response:
        monkeypatch.setattr(FakeApi, "_patch", answer)
        time.sleep(2 * QUICK.renew)
        return answer(api, asked)

    monkeypatch.setattr(FakeApi, "_patch", late)
    async with leading(candidate()) as term:
        await term.lost.wait()
        assert not term.leads


async def test_a_touched_lease_is_still_ours(api: FakeApi, steady: Lease) -> None:
    async with leading(steady) as term:
        for _ in range(5):
            api.put(LEASES, api.objects[LEASES]["muster/muster-controller"])
            await renewed(term)
        assert term.leads


async def test_a_leader_whose_answers_fail_for_a_moment_goes_on(api: FakeApi, steady: Lease) -> None:
    async with leading(steady) as term:
        for _ in range(3):
            api.answer("PATCH", PATH, 503, "away")
        while api.answers["PATCH", PATH]:
            await api.next_request()
        await renewed(term)
        assert term.leads


async def test_a_missing_role_is_waited_for(api: FakeApi, candidate: Callable[[], Lease]) -> None:
    api.answer("GET", PATH, 403, status(403, "Forbidden", "no"))
    api.answer("POST", PATH.rsplit("/", 1)[0], 409, status(409, "AlreadyExists", "another was faster"))

    async with leading(candidate()) as term:
        assert term.leads


async def test_an_exception_raised_during_a_term_is_passed_on(candidate: Callable[[], Lease]) -> None:
    with pytest.raises(ZeroDivisionError):
        async with leading(candidate()):
            raise ZeroDivisionError

    async with leading(candidate()) as term:
        assert term.leads, "and the lease was given back"


async def test_a_leader_that_is_stopped_gives_the_lease_back(api: FakeApi, candidate: Callable[[], Lease]) -> None:
    began = asyncio.Event()

    async def lead() -> None:
        async with candidate().lead():
            began.set()
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(lead())
        await began.wait()
        task.cancel()

    assert not spec(api).get("holderIdentity")
