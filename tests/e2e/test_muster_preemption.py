"""Whole gangs are evicted on a real control plane, and queue again: for one of higher priority, for a queue that takes
back what it has lent, by draining, and when they have run for too long.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from admission.api.values.names import API_VERSION
from tests.controlplane import ControlPlane, fleet, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e import fixtures
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP, Team, found_team, job

URGENT = "muster-preemption-urgent"


# A node of four GPUs, and a priority that kube-scheduler does not preempt for.
hardware = fixtures.hardware([*fleet.demo_fleet([4]), fleet.priority_class(URGENT)])


@pytest.fixture
def other(namespace: Namespace) -> Iterator[Namespace]:
    """Another namespace beside the test's own."""
    other = replace(namespace, name=f"{namespace.name}-other")
    other.client.create("/api/v1/namespaces", {"metadata": {"name": other.name}})
    yield other
    other.empty()
    other.client.delete(f"/api/v1/namespaces/{other.name}")


def submit_urgently(team: Team, name: str, pods: int) -> None:
    team.namespace.create(workloads.claim_template("urgent", workloads.device_request(count=1)))
    manifest = job(name, pods=pods, template="urgent", annotations={})
    manifest["spec"]["template"]["spec"]["priorityClassName"] = URGENT
    team.control_plane.client().create(team.jobs, manifest)


def uids(team: Team, name: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in team.pods(name)}


def failed(team: Team, name: str) -> int:
    """How many of the Job's pods count against its `backoffLimit`."""
    return int(team.control_plane.client().get(f"{team.jobs}/{name}")["status"].get("failed", 0))


def test_a_gang_of_higher_priority_evicts_a_lower_one_whole_which_queues_again(
    control_plane: ControlPlane, muster: Muster, namespace: Namespace
) -> None:
    team = found_team(control_plane, namespace, gpus=4, preemption={"withinQueue": "LowerPriority"})
    team.submit("low", pods=3)
    team.wait_running("low", 3)
    since = eventually(lambda: team.status("low").get("queuedSince"), what="its status says since when it waits")

    submit_urgently(team, "high", 4)

    team.wait_running("high", 4)
    eventually(lambda: len(team.gated("low")) == 3, what="its victim waits again, whole")
    team.wait_held("low", "QuotaExceeded")
    victim = team.status("low")
    assert victim["evicted"]["reason"] == "Preempted"
    assert victim["evicted"]["madeRoomFor"] == f"{namespace.name}/{team.gang('high')['metadata']['name']}"  # type: ignore[index]
    assert victim["queuedSince"] == since
    assert "It was taken back (Preempted): gang " in muster.command("why", f"{namespace.name}/low")

    team.finish("high")
    team.wait_running("low", 3)
    eventually(lambda: "evicted" not in team.status("low"), what="what runs again is not told as evicted")

    client = control_plane.client()
    queue = f"{GROUP}/queues/{team.queue}"
    client.merge_patch(queue, {"spec": {"stopPolicy": "HoldAndDrain"}})
    team.wait_held("low", "QueueStopped")
    eventually(lambda: team.used("gpus") == (0, 0), what="a drained queue uses nothing")
    assert len(team.gated("low")) == 3
    client.merge_patch(queue, {"spec": {"stopPolicy": "None"}})
    team.wait_running("low", 3)

    assert client.get(f"{team.jobs}/low")["status"].get("failed", 0) == 0
    events = client.items(f"/apis/events.k8s.io/v1/namespaces/{namespace.name}/events")
    assert {"Preempted", "QueueDrained"} <= {event["reason"] for event in events}
    assert muster.wrong_books() is None
    team.finish("low")
    client.delete(queue)


def tree_of(namespace: Namespace) -> str:
    """The root of the lender's and the borrower's queue; of another test's, deletion may take a while."""
    return f"lending-{namespace.name}"


@pytest.fixture
def lender(control_plane: ControlPlane, muster: Muster, namespace: Namespace, other: Namespace) -> Iterator[Team]:
    """A team of three GPUs, all of them lent to whoever is in the same tree while it needs none."""
    client = control_plane.client()
    name = tree_of(namespace)
    root = f"{GROUP}/queues/{name}"
    client.apply(root, {"apiVersion": API_VERSION, "kind": "Queue", "metadata": {"name": name}, "spec": {}})
    team = found_team(control_plane, other, gpus=3, parent=name, preemption={"reclaim": "Any"})
    yield team
    team.disband()
    client.delete(root)


def test_what_a_queue_has_lent_comes_back_from_one_whole_gang_that_keeps_its_place(
    control_plane: ControlPlane, muster: Muster, namespace: Namespace, lender: Team
) -> None:
    borrower = found_team(control_plane, namespace, gpus=1, parent=tree_of(namespace))
    borrower.submit("own", pods=1)
    borrower.wait_running("own", 1)
    borrower.submit("loan", pods=3)
    borrower.wait_running("loan", 3)
    since = eventually(lambda: borrower.status("loan").get("queuedSince"), what="its status says since when it waits")
    # Times of creation are in whole seconds: of two of the same one the name says who is first.
    eventually(lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") > since, what="the next second begins")
    borrower.submit("later", pods=3)
    borrower.wait_held("later", "QuotaExceeded")
    own, loan, gang = uids(borrower, "own"), uids(borrower, "loan"), borrower.gang("loan")["metadata"]["uid"]  # type: ignore[index]

    lender.submit("claimed", pods=3)

    lender.wait_running("claimed", 3)
    eventually(lambda: len(borrower.gated("loan")) == 3, what="its victim waits again, whole")
    borrower.wait_held("loan", "QuotaExceeded")
    victim = borrower.status("loan")
    assert victim["evicted"]["reason"] == "Reclaimed"
    assert "madeRoomFor" not in victim["evicted"], "that is a gang of another namespace"
    assert f"{lender.namespace.name}/" not in json.dumps(victim)
    claimed = lender.gang("claimed")["metadata"]["uid"]  # type: ignore[index]
    eventually(
        lambda: claimed in json.dumps(borrower.status("loan")["evicted"]["references"]),
        what="it has the UID of that gang, once there is a Gang of it",
    )
    told = muster.command("why", f"{namespace.name}/loan")
    assert f"gang {lender.key('claimed')} takes back" in told, "its user may read all gangs"
    assert victim["queuedSince"] == since
    assert borrower.gang("loan")["metadata"]["uid"] == gang  # type: ignore[index]
    eventually(
        lambda: [borrower.status(name).get("position") for name in ("loan", "later")] == [1, 2],
        what="it is before who came later",
    )
    assert not uids(borrower, "loan") & loan
    assert (uids(borrower, "own"), borrower.phases("own")) == (own, ["Running"])
    assert failed(borrower, "loan") == 0
    eventually(
        lambda: (borrower.used("gpus"), lender.used("gpus")) == ((0, 1), (0, 3)), what="each uses what is its own"
    )
    (entry,) = muster.entries(f"{namespace.name}/loan", "evict")
    assert entry["reason"].startswith("Reclaimed: ")
    assert not muster.entries(f"{namespace.name}/own", "evict")

    lender.finish("claimed")
    borrower.wait_running("loan", 3)
    borrower.wait_held("later", "QuotaExceeded")
    assert muster.wrong_books() is None
    borrower.disband()


def test_a_gang_that_has_its_queues_own_and_a_loan_at_once_is_taken_back_and_takes_nothing_back_itself(
    control_plane: ControlPlane, muster: Muster, namespace: Namespace, lender: Team
) -> None:
    borrower = found_team(control_plane, namespace, gpus=1, parent=tree_of(namespace), preemption={"reclaim": "Any"})
    borrower.submit("large", pods=4)
    borrower.wait_running("large", 4)

    lender.submit("claimed", pods=3)

    lender.wait_running("claimed", 3)
    eventually(lambda: len(borrower.gated("large")) == 4, what="its victim waits again, whole")
    hold = borrower.wait_held("large", "QuotaExceeded")
    assert hold["details"]["left"] == "1"
    assert borrower.status("large")["evicted"]["reason"] == "Reclaimed"
    eventually(lambda: (borrower.used("gpus"), lender.used("gpus")) == ((0, 0), (0, 3)), what="the owner has its own")
    assert not muster.entries(f"{lender.namespace.name}/claimed", "evict")

    lender.finish("claimed")
    borrower.wait_running("large", 4)
    assert muster.wrong_books() is None
    borrower.disband()


MAX_RUNTIME, GRACE = 4, 3
"""Seconds."""


def test_of_what_is_lent_to_several_the_queue_that_has_less_gets_its_share_and_is_next(
    control_plane: ControlPlane, muster: Muster, namespace: Namespace, other: Namespace
) -> None:
    client, parent = control_plane.client(), tree_of(namespace)
    quotas = [{"meter": "gpus", "nominal": "4"}]
    root = {"apiVersion": API_VERSION, "kind": "Queue", "metadata": {"name": parent}, "spec": {"quotas": quotas}}
    client.apply(f"{GROUP}/queues/{parent}", root)
    spec: dict[str, Any] = {
        "parent": parent,
        "fairSharing": {"weight": "1"},
        "preemption": {"reclaim": "Any", "byShares": "LessThanOrEqualToFinalShare"},
    }
    greedy, modest = (found_team(control_plane, of, gpus=0, **spec) for of in (namespace, other))
    for name in ("one", "two"):
        greedy.submit(name, pods=2)
        greedy.wait_running(name, 2)

    modest.submit("first", pods=2)

    modest.wait_running("first", 2)
    (victim,) = (name for name in ("one", "two") if muster.entries(f"{namespace.name}/{name}", "evict"))
    (left,) = {"one", "two"} - {victim}
    greedy.wait_held(victim, "QuotaExceeded")
    (entry,) = muster.entries(f"{namespace.name}/{victim}", "evict")
    assert "is of a queue with a smaller share of what is lent than" in entry["reason"]
    assert len(greedy.phases(left)) == 2

    # Both have half of it, so neither takes more of the other; who has less is next, however long others have waited.
    modest.submit("second", pods=2)
    modest.wait_held("second", "QuotaExceeded")
    modest.finish("first")
    modest.wait_running("second", 2)
    greedy.wait_held(victim, "QuotaExceeded")
    assert muster.wrong_books() is None
    for queue in (greedy.queue, modest.queue, parent):
        client.delete(f"{GROUP}/queues/{queue}")


def test_who_has_run_for_the_longest_time_of_its_queue_ends_whole_gives_all_back_and_queues_again(
    control_plane: ControlPlane, muster: Muster, namespace: Namespace
) -> None:
    # Longer than its pods need to go, or else it is its own turn again, since it is older than the next gang.
    team = found_team(control_plane, namespace, gpus=4, requeue={"base": "10s"})
    team.submit("long", pods=3, grace=GRACE)
    team.wait_running("long", 3)
    first = uids(team, "long")
    team.submit("next", pods=2)
    assert team.wait_held("next", "QuotaExceeded")["details"]["left"] == "1"

    queue = f"{GROUP}/queues/{team.queue}"
    control_plane.client().merge_patch(queue, {"spec": {"maxRuntime": f"{MAX_RUNTIME}s"}})
    ended = eventually(lambda: team.status("long").get("evicted"), what="its time is over")
    control_plane.client().merge_patch(queue, {"spec": {"maxRuntime": "1h"}})
    assert ended["reason"] == "RuntimeExceeded"
    assert f"longer than {MAX_RUNTIME}s, the maxRuntime of queue {team.queue}" in ended["message"]

    team.wait_running("next", 2)
    eventually(lambda: len(team.gated("long")) == 3, what="it waits again, whole")
    eventually(lambda: team.used("gpus") == (0, 2), what="nothing of it is charged")
    assert not uids(team, "long") & first
    assert failed(team, "long") == 0
    workload = f"{namespace.name}/long"
    (entry,) = muster.entries(workload, "evict")
    assert entry["reason"].startswith("RuntimeExceeded: ")
    (begun,), released = muster.entries(workload, "reserve"), muster.entries(workload, "release")
    assert at(entry) - at(begun) >= timedelta(seconds=MAX_RUNTIME)
    # Kubernetes writes to the second when a grace is over.
    assert at(released[-1]) - at(begun) >= timedelta(seconds=MAX_RUNTIME + GRACE - 1)

    team.finish("next")
    team.wait_running("long", 3)
    events = control_plane.client().items(f"/apis/events.k8s.io/v1/namespaces/{namespace.name}/events")
    assert "RuntimeExceeded" in {event["reason"] for event in events}
    assert muster.wrong_books() is None
    team.finish("long")
    control_plane.client().delete(queue)


def at(entry: Any) -> datetime:
    return datetime.fromisoformat(entry["at"])
