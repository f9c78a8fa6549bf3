"""Who could be evicted, who goes in any case, and what each of them gives back."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.muster.ledger_entries import Holding, Placement, Seat
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import GangUid, MeterName, NodeName, QueueName, Uid
from admission.dra.metering.device_meters import Meters
from admission.dra.state import cluster_state, what_if
from admission.lifecycle.transitions import ObservedAllocations
from admission.scheduling.preemption import candidates
from admission.scheduling.preemption.candidates import CandidateInputs
from admission.scheduling.preemption.targets import PreemptionCandidate
from admission.workloads import gangs
from tests.builders import CLASS, NOON, a_cluster, pod_of, running, with_pods

GPUS = MeterName("gpus")


def placed(job: str, device: str, *, also: Iterable[str] = (), queue: str = "q") -> Placement:
    """What the books have open for a Job of one pod with one device. also: claims of others that its pod uses."""
    claim = Uid(f"claim-{job}-0-gpus")
    seat = Seat(pod_uid=Uid(f"pod-{job}-0"), pod=f"team/{job}-0", node=NodeName("a"), claims=(claim, *map(Uid, also)))
    given = RequestDevice(request="gpus", device=DeviceId(CLASS, "a", device))
    held = Holding(claim_uid=claim, claim=f"team/{job}-0-gpus", devices=(given,), charge={GPUS: 1})
    return Placement(
        gang_uid=GangUid(f"job-{job}"),
        gang=f"team/{job}",
        queue=QueueName(queue),
        reserved_at=NOON,
        seats={seat.pod_uid: seat},
        holdings={claim: held},
    )


def two(*placements: Placement, **changes: object) -> tuple[Snapshot, CandidateInputs]:
    snapshot = a_cluster().node("a", gpus=4).queue("q", gpus=8).job("x", queue="q").job("y", queue="q").snapshot()
    pods = [running(pod_of(snapshot, name), "a") for name in ("x-0", "y-0")]
    snapshot = replace(with_pods(snapshot, *pods), **changes)  # type: ignore[arg-type]
    return snapshot, seen(snapshot, placements)


def seen(snapshot: Snapshot, placements: Iterable[Placement], leaving: Iterable[str] = ()) -> CandidateInputs:
    return CandidateInputs(
        placements={one.gang_uid: one for one in placements},
        observed=ObservedAllocations.from_snapshot(snapshot, Meters()),
        leaving=frozenset(map(Uid, leaving)),
        now=NOON,
    )


def of(
    snapshot: Snapshot, what: CandidateInputs
) -> tuple[dict[str, PreemptionCandidate], dict[str, PreemptionCandidate]]:
    staying, going = candidates.candidates(gangs.groups(snapshot, what.placements), what)
    return {one.key: one for one in staying}, {one.key: one for one in going}


def test_a_gang_gives_back_its_devices_its_charge_and_its_room() -> None:
    placements = placed("x", "gpu-0"), placed("y", "gpu-1")
    snapshot, what = two(*placements)
    cluster = cluster_state.build(snapshot, placements)

    staying, going = of(snapshot, what)
    after = what_if.without_gangs(cluster, [staying["team/x"].belongings])

    assert (set(staying), going) == ({"team/x", "team/y"}, {})
    assert staying["team/x"].charge == {GPUS: 1}
    assert {device.device for device in cluster.taken} == {"gpu-0", "gpu-1"}
    assert {device.device for device in after.taken} == {"gpu-1"}
    assert _cpu(cluster.left) == 62_000
    assert _cpu(after.left) == 63_000
    assert set(after.pinned) == {Uid("claim-y-0-gpus")}
    assert what_if.without_gangs(cluster, []) is cluster


def _cpu(left: cluster_state.Left) -> int:
    amounts = left[NodeName("a")]
    assert amounts is not None
    return amounts["cpu"]


def test_a_claim_that_another_gang_also_uses_is_not_freed_by_preemption() -> None:
    snapshot, what = two(placed("x", "gpu-0"), placed("y", "gpu-1", also=["claim-x-0-gpus"]))

    staying, _ = of(snapshot, what)

    assert staying["team/x"].charge == {}
    assert staying["team/x"].belongings.claims == frozenset()
    assert staying["team/y"].charge == {GPUS: 1}


def test_a_gang_that_ran_before_it_was_booked_is_as_old_as_its_pods() -> None:
    """As one that ran when Muster came, and all that `muster simulate` is given."""
    snapshot, what = two(placed("x", "gpu-0"), placed("y", "gpu-1"))
    for name, minutes in (("x-0", -30), ("y-0", 1)):
        pod = replace(pod_of(snapshot, name), started=NOON + timedelta(minutes=minutes))
        snapshot = with_pods(
            snapshot, *(pod if one.meta.uid == pod.meta.uid else one for one in snapshot.pods.values())
        )

    staying, _ = of(snapshot, what)

    assert staying["team/x"].candidate.reserved_at == NOON - timedelta(minutes=30)
    assert staying["team/y"].candidate.reserved_at == NOON


def test_pods_being_deleted_count_as_leaving_unless_their_deletion_has_stalled() -> None:
    placements = placed("x", "gpu-0"), placed("y", "gpu-1")
    snapshot, _ = two()
    dying = [
        replace(pod, meta=replace(pod.meta, deleted=NOON - ago))
        for pod, ago in (
            (pod_of(snapshot, "x-0"), timedelta()),
            (pod_of(snapshot, "y-0"), candidates.STALLED + timedelta(seconds=1)),
        )
    ]
    snapshot = with_pods(snapshot, *dying)

    staying, going = of(snapshot, seen(snapshot, placements))

    assert staying == {}
    assert set(going) == {"team/x", ""}
    assert len(going[""].belongings.room) == 1, "the room of every pod that goes, whoever's it is"
    assert going["team/x"].belongings.room == (), "and each once"


def test_an_evicted_gang_counts_as_leaving_before_the_view_shows_the_eviction() -> None:
    placements = placed("x", "gpu-0"), replace(placed("y", "gpu-1"), seats={})
    snapshot, _ = two()

    staying, going = of(snapshot, seen(snapshot, placements, leaving=["pod-x-0"]))

    assert staying == {}
    assert set(going) == {"team/x", "team/y", ""}
    assert going["team/y"].charge == {GPUS: 1}


def test_an_evicted_gang_whose_claim_is_kept_by_a_pod_on_a_lost_node_does_not_count_as_leaving() -> None:
    placement = replace(placed("x", "gpu-0"), seats={})
    snapshot, _ = two()
    claim = replace(snapshot.claims["team/x-0-gpus"], reserved_for=("pod-x-0", "pod-gone"))
    snapshot = replace(snapshot, claims={**snapshot.claims, claim.meta.key: claim})

    for ago, leaves in ((timedelta(), True), (candidates.STALLED + timedelta(seconds=1), False)):
        pod = pod_of(snapshot, "x-0")
        dying = with_pods(snapshot, replace(pod, meta=replace(pod.meta, deleted=NOON - ago)))
        _, going = of(dying, seen(dying, [placement]))
        assert ("team/x" in going) == leaves


def test_an_evicted_gang_whose_pod_keeps_its_cores_on_a_lost_node_does_not_count_as_leaving() -> None:
    held = Holding(
        claim_uid=names.resources_claim(Uid("pod-x-0")), claim="team/x-0", devices=(), charge={GPUS: 1}, settled=True
    )
    placement = replace(placed("x", "gpu-0"), seats={}, holdings={held.claim_uid: held})
    snapshot, _ = two()

    for ago, leaves in ((timedelta(), True), (candidates.STALLED + timedelta(seconds=1), False)):
        pod = pod_of(snapshot, "x-0")
        dying = with_pods(snapshot, replace(pod, meta=replace(pod.meta, deleted=NOON - ago)))
        _, going = of(dying, seen(dying, [placement]))
        assert ("team/x" in going) == leaves
