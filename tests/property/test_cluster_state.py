"""A world that is made from the one before is the world that is made anew, whatever has changed in between."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given, settings, strategies as st

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.kubernetes.meta import Owner
from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Holding, Placement, Seat
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import GangUid, NodeName, QueueName, Uid
from admission.dra.requests import extended_resources
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState
from tests.unit.dra.clusters import DRIVER, a_claim, a_cluster, a_pod, a_request
from tests.unit.quota.test_tree import NOON

NODES = ("a", "b")
GPUS = 2
ALLOCATABLE = {"cpu": "8", "memory": "8Gi", "pods": "10"}
SAYS = ("profile", "nodes", "classes", "taken", "shares", "left", "pinned", "users", "conflicted", "pending")

NAMES = ("p", "q")
GATE = {"name": "muster.dev/admission"}
CHANGES = 20


def _device(draw: Random) -> tuple[str, int]:
    return draw.choice(NODES), draw.randrange(GPUS)


def _pod(draw: Random, name: str) -> Pod:
    spec: dict[str, Any] = draw.choice(({}, {"nodeName": "a"}, {"nodeName": "b"}, {"schedulingGates": [GATE]}))
    extended = draw.choice(({}, {}, {"example.com/gpu": "1"}))
    pod = a_pod(name, requests={"cpu": str(draw.randint(1, 2)), **extended}, **spec).pod
    nominated = NodeName(draw.choice(("", "", *NODES)))
    return replace(pod, phase=draw.choice(("Pending", "Running", "Succeeded")), nominated=nominated)


def _claim(draw: Random, name: str) -> Claim:
    results = [
        {"request": "gpu", "driver": DRIVER, "pool": node, "device": f"gpu-{at}"}
        | draw.choice(({}, {"shareID": "x"}, {"adminAccess": True}))
        for node, at in {_device(draw) for _ in range(draw.randint(0, 2))}
    ]
    status: dict[str, Any] = {"allocation": {"devices": {"results": results}}} if results else {}
    # kube-scheduler makes claims for extended resources in the name of their pods.
    status |= draw.choice(({}, {"reservedFor": [{"resource": "pods", "name": "p", "uid": "pod-p"}]}))
    claim = a_claim(name, a_request(), **status)
    return replace(claim, meta=replace(claim.meta, uid=draw.choice((claim.meta.uid, Uid(f"{claim.meta.uid}-anew")))))


def _placement(draw: Random, name: str) -> Placement:
    node, at = _device(draw)
    users = draw.sample(NAMES, draw.randint(1, 2))
    given_ = RequestDevice(request="gpu", device=DeviceId(DRIVER, node, f"gpu-{at}"))
    uid = draw.choice((Uid(f"claim-{name}"), names.extended_claim(Uid(f"pod-{name}"))))
    held = Holding(claim_uid=uid, claim=f"team/{name}", devices=(given_,), charge={})
    return Placement(
        gang_uid=GangUid(name),
        gang=f"team/{draw.choice(NAMES)}",
        queue=QueueName("q"),
        reserved_at=NOON,
        seats={
            uid: Seat(pod_uid=uid, pod=f"team/{user}", node=NodeName(node), claims=(held.claim_uid,))
            for user in users
            for uid in (Uid(f"pod-{user}"),)
        },
        holdings={held.claim_uid: held},
    )


KINDS: dict[str, Callable[[Random, str], Any]] = {"pod": _pod, "claim": _claim, "placement": _placement}


def _changes(draw: Random) -> Iterator[tuple[str, str, Any]]:
    """Yield what takes which object's place; None: it is gone."""
    for _ in range(CHANGES):
        kind, name = draw.choice([*KINDS]), draw.choice(NAMES)
        yield kind, name, KINDS[kind](draw, name) if draw.random() < STAYS else None


STAYS = 0.8
"""How often an object is changed rather than gone."""


def _played(changes: Iterable[tuple[str, str, Any]]) -> Iterator[tuple[Snapshot, tuple[Placement, ...]]]:
    builder = a_cluster()
    for node in NODES:
        builder.node(node, gpus=GPUS, allocatable=ALLOCATABLE)
    snapshot, placements = builder.snapshot(), dict[str, Placement]()
    yield snapshot, ()
    for kind, name, value in changes:
        if kind == "pod":
            known = {uid: pod for uid, pod in snapshot.pods.items() if pod.meta.name != name}
            snapshot = replace(snapshot, pods=known if value is None else {**known, value.meta.uid: value})
        elif kind == "claim":
            claims = {key: claim for key, claim in snapshot.claims.items() if claim.meta.name != name}
            snapshot = replace(snapshot, claims=claims if value is None else {**claims, value.meta.key: value})
        else:
            placements.pop(name, None)
            placements |= {} if value is None else {name: value}
        yield snapshot, tuple(placements.values())


@given(seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_a_cluster_state_built_from_the_previous_one_equals_one_built_from_scratch(seed: int) -> None:
    before: ClusterState | None = None
    for snapshot, placements in _played(_changes(Random(seed))):  # noqa: S311 - a seed for choices
        cluster, updated = (
            cluster_state.build(snapshot, placements, before=before),
            cluster_state.build(snapshot, placements),
        )

        assert {name: getattr(cluster, name) for name in SAYS} == {name: getattr(updated, name) for name in SAYS}
        assert cluster.placed.nominated == updated.placed.nominated
        if before is not None:
            # Of a copy nobody knows where it came from: everything is compared.
            assert cluster_state.changed(before, cluster) == cluster_state.changed(before, replace(cluster))
        before = cluster


def test_unchanged_parts_of_a_cluster_state_are_not_computed_again() -> None:
    builder = a_cluster().node("a", gpus=2, allocatable=ALLOCATABLE).node("b", gpus=2, allocatable=ALLOCATABLE)
    for name, node in (("p", "a"), ("q", "b")):
        builder.pods.append(a_pod(name, nodeName=node, requests={"cpu": "1"}).pod)
        results = [{"request": "gpu", "driver": DRIVER, "pool": node, "device": "gpu-0"}]
        builder.claims.append(a_claim(name, a_request(), allocation={"devices": {"results": results}}))
    snapshot = builder.snapshot()
    before = cluster_state.build(snapshot, ())
    more = a_pod("r", nodeName="b", requests={"cpu": "1"}).pod
    after = cluster_state.build(replace(snapshot, pods={**snapshot.pods, more.meta.uid: more}), (), before=before)

    assert after.left[NodeName("a")] is before.left[NodeName("a")]
    assert after.left[NodeName("b")] != before.left[NodeName("b")]
    assert all(after.taken[device] is holder for device, holder in before.taken.items())


def test_what_uses_nothing_leaves_the_state_as_it_is() -> None:
    """Pods that wait and claims that are not allocated come all the time: what was proved is not proved again."""
    builder = a_cluster()
    for node in NODES:
        builder.node(node, gpus=GPUS, allocatable=ALLOCATABLE)
    snapshot = builder.snapshot()
    before = cluster_state.build(snapshot, ())
    waiting, claim = a_pod("p", requests={"cpu": "1"}, schedulingGates=[GATE]).pod, a_claim("p", a_request())
    with_both = replace(snapshot, pods={waiting.meta.uid: waiting}, claims={claim.meta.key: claim})
    bound = replace(waiting, node=NodeName("a"), gates=())
    with_bound = replace(with_both, pods={waiting.meta.uid: bound})

    assert cluster_state.build(with_both, (), before=before) is before
    assert cluster_state.build(snapshot, (), before=before) is before

    other = cluster_state.build(with_bound, (), before=before)
    assert other is not before
    assert cluster_state.changed(before, other) == frozenset({NodeName("a")})


@given(seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_an_incremental_claim_index_equals_an_index_built_from_scratch(seed: int) -> None:
    draw = Random(seed)  # noqa: S311 - a seed for choices
    index = extended_resources.Index.from_snapshot(Snapshot())
    for snapshot, _ in _played(_reserved(draw, _changes(draw))):
        index = extended_resources.Index.from_snapshot(snapshot, index)

        updated = extended_resources.Index.from_snapshot(snapshot)
        assert (index.claims, index.holders) == (updated.claims, updated.holders)
        assert all(index.claims[uid] is claim for uid, claim in updated.claims.items())


def _reserved(draw: Random, changes: Iterable[tuple[str, str, Any]]) -> Iterator[tuple[str, str, Any]]:
    """Have claims be reserved for pods, and some be those that kube-scheduler has made for them."""
    for kind, name, value in changes:
        if kind != "claim" or value is None:
            yield kind, name, value
            continue
        users = tuple(f"pod-{one}" for one in NAMES if draw.random() < HALF)
        meta = value.meta
        if draw.random() < HALF:
            owner = Owner(
                api_version="v1", kind="Pod", name=name, uid=Uid(f"pod-{draw.choice(NAMES)}"), controller=True
            )
            meta = replace(meta, annotations={extended_resources.ANNOTATION: "true"}, owners=(owner,))
        yield kind, name, replace(value, meta=meta, reserved_for=users)


HALF = 0.5
