"""Bad gangs in one queue with a good one: each waits or is refused with its reason, and the good one starts."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from admission.api.kubernetes import claims, devices
from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.pods import PodClaim
from admission.api.muster import gangs
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import Uid
from admission.api.values.reasons import DenyReason, HoldReason
from admission.cycle import cycle
from admission.errors import MalformedObjectError, Problem
from admission.scheduling.placement.protection import Barriers
from admission.simulation import in_memory
from tests.builders import CLASS, NOON, ClusterBuilder, a_cluster, claim_manifest
from tests.unit.cycle.fences import Cluster, a_leader, cycles, everything_runs, fence, kinds

Change = Callable[[Snapshot], Snapshot]


@dataclass(frozen=True, slots=True)
class Bad:
    """A gang called bad. change: of what the builder makes. reason and says: what its status must have."""

    builder: Callable[[ClusterBuilder], ClusterBuilder]
    reason: HoldReason | DenyReason
    says: tuple[str, ...]
    change: Change = lambda snapshot: snapshot


def a_job(pods: int = 2, **options: Any) -> Callable[[ClusterBuilder], ClusterBuilder]:
    return lambda builder: builder.job("bad", queue="q", pods=pods, **options)


def named(*sizes: str) -> Callable[[ClusterBuilder], ClusterBuilder]:
    """Pods of a named gang, each with what it says of its size."""

    def build(builder: ClusterBuilder) -> ClusterBuilder:
        for at, size in enumerate(sizes):
            labels = {names.GANG: "bad"}
            builder.pod(f"bad-{at}", labels=labels, annotations={names.GANG_SIZE: size} if size else {})
        return builder

    return build


def a_pod(builder: ClusterBuilder) -> ClusterBuilder:
    return builder.pod("bad", gpus=0)


def job(**changes: Any) -> Change:
    return lambda s: replace(s, jobs={**s.jobs, Uid("job-bad"): replace(s.jobs[Uid("job-bad")], **changes)})


def written(**spec: Any) -> Change:
    """A Gang that a user has written."""
    gang = gangs.decode({"metadata": {"name": "bad", "namespace": "team"}, "spec": {"queue": "q", **spec}})
    return lambda s: replace(s, gangs={"team/bad": gang})


def unread(kind: str, key: str, field: str, message: str = "is wrong") -> Change:
    error = MalformedObjectError(kind, key, (Problem(field, message),))
    return lambda s: replace(s, malformed={**s.malformed, (kind, key): error})


def no_job(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, jobs={uid: job for uid, job in snapshot.jobs.items() if uid != "job-bad"})


def claim(key: str, change: Callable[[Claim], Claim]) -> Change:
    return lambda s: replace(s, claims={**s.claims, f"team/{key}": change(s.claims[f"team/{key}"])})


def deleted(meta: Meta, *finalizers: str) -> Meta:
    return replace(meta, deleted=NOON, finalizers=finalizers)


def naming(claim_name: str, *extra: Claim) -> Change:
    """Let the pod called bad name a claim."""

    def change(snapshot: Snapshot) -> Snapshot:
        pod = replace(snapshot.pods[Uid("pod-bad")], claims=(PodClaim(name="mine", claim=claim_name),))
        more = {one.meta.key: one for one in extra}
        return replace(snapshot, pods={**snapshot.pods, pod.meta.uid: pod}, claims={**snapshot.claims, **more})

    return change


def asking(**exactly: Any) -> Change:
    """Let the pod called bad ask for something of its own."""
    manifest = claim_manifest("own", 1, owner="pod-bad")
    manifest["spec"]["devices"]["requests"] = [{"name": "gpus", "exactly": {"deviceClassName": CLASS, **exactly}}]
    return naming("own", claims.decode(manifest))


def doomed_pod(snapshot: Snapshot) -> Snapshot:
    pod = snapshot.pods[Uid("pod-bad-1")]
    removed = replace(pod, meta=deleted(pod.meta, "batch.kubernetes.io/job-tracking"))
    return replace(snapshot, pods={**snapshot.pods, pod.meta.uid: removed})


def without_class(snapshot: Snapshot) -> Snapshot:
    return asking(deviceClassName="missing.example.com")(snapshot)


def a_slice(name: str, pool: str, *device_names: str, count: int = 1, node: str = "c") -> devices.Slice:
    spec = {
        "driver": CLASS,
        "nodeName": node,
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": count},
        "devices": [{"name": one, "attributes": {"model": {"string": "rare"}}} for one in device_names],
    }
    return devices.decode_slice({"metadata": {"name": name, "uid": f"slice-{name}"}, "spec": spec})


def slices(*more: devices.Slice) -> Change:
    return lambda s: replace(s, slices={**s.slices, **{one.meta.key: one for one in more}})


def both(*changes: Change) -> Change:
    def change(snapshot: Snapshot) -> Snapshot:
        for one in changes:
            snapshot = one(snapshot)
        return snapshot

    return change


RARE = {"selectors": [{"cel": {"expression": f'device.attributes["{CLASS}"].model == "rare"'}}]}
GUARDED = {
    "selectors": [
        {
            "cel": {
                "expression": f'"model" in device.attributes["{CLASS}"] && {RARE["selectors"][0]["cel"]["expression"]}'
            }
        }
    ]
}
OTHERS = replace(claims.decode(claim_manifest("theirs", 1, owner="pod-waiting-0")))

INCOMPLETE, WAITS, NOWHERE = (
    HoldReason.GANG_INCOMPLETE,
    HoldReason.WAITING_FOR_CLAIMS,
    HoldReason.NO_FEASIBLE_PLACEMENT,
)
MALFORMED = DenyReason.MALFORMED_REQUEST

BAD: dict[str, Bad] = {
    "too few pods for ever": Bad(a_job(3, made=2), INCOMPLETE, ("2 of 3 pods exist", "spec.parallelism of Job bad")),
    "a size that no pods will reach": Bad(
        named("4", "4"), INCOMPLETE, ("2 of 4 pods exist", "muster.dev/gang-size of its pods")
    ),
    "no size": Bad(named("", ""), INCOMPLETE, ("how large gang bad is", "muster.dev/gang-size", "spec.size")),
    "size 0": Bad(named("0"), MALFORMED, ("pod bad-0: muster.dev/gang-size is '0'", "from 1 to 10000")),
    "a negative size": Bad(named("-2"), MALFORMED, ("pod bad-0: muster.dev/gang-size is '-2'",)),
    "size 10^9": Bad(named("1000000000"), MALFORMED, ("is '1000000000'", "from 1 to 10000")),
    "a size of thousands of digits": Bad(named("9" * 5000), MALFORMED, ("is '9999999999", "…'")),
    "a size that is no number": Bad(named("two"), MALFORMED, ("is 'two'",)),
    "a size in digits of another script": Bad(named("٣"), MALFORMED, ("is '٣'",)),
    "sizes that differ": Bad(named("2", "3"), DenyReason.POLICY_VIOLATION, ("different sizes (2, 3)",)),
    "a Gang of 10^9 pods": Bad(
        named(""),
        INCOMPLETE,
        ("spec.size of Gang team/bad makes it 1000000000 pods", "at most 10000"),
        written(size=10**9),
    ),
    "a Gang that cannot be read": Bad(
        named(""), INCOMPLETE, ("spec.size: is wrong", "mend it"), unread("Gang", "team/bad", "spec.size")
    ),
    "a Job of 10^9 pods": Bad(
        a_job(1),
        INCOMPLETE,
        ("spec.parallelism of Job bad makes it 1000000000 pods", "at most 10000"),
        job(parallelism=10**9, completions=None),
    ),
    "a Job that cannot be read": Bad(
        a_job(1),
        INCOMPLETE,
        ("Job team/bad: spec.parallelism: is wrong", "mend it"),
        both(no_job, unread("Job", "team/bad", "spec.parallelism")),
    ),
    "a pod that is being deleted": Bad(a_job(2), INCOMPLETE, ("1 of 2 pods exist",), doomed_pod),
    "a named claim that does not exist": Bad(
        a_pod, WAITS, ("pod bad, claim mine: ResourceClaim team/lost does not exist; create it",), naming("lost")
    ),
    "a named claim that cannot be read": Bad(
        a_pod,
        WAITS,
        ("ResourceClaim team/lost: spec.devices: is wrong; mend it",),
        both(naming("lost"), unread("ResourceClaim", "team/lost", "spec.devices")),
    ),
    "a named claim that belongs to another gang": Bad(
        a_pod, WAITS, ("ResourceClaim team/theirs belongs to pod - of another gang",), naming("theirs", OTHERS)
    ),
    "a claim from a template that was made for another pod": Bad(
        a_job(1),
        WAITS,
        ("ResourceClaim team/bad-0-gpus was made for pod -", "delete pod bad-0"),
        claim(
            "bad-0-gpus",
            lambda c: replace(c, meta=replace(c.meta, owners=(replace(c.meta.owners[0], uid=Uid("pod-other")),))),
        ),
    ),
    "a template that does not exist": Bad(
        a_job(1, claim=False),
        WAITS,
        ("pod bad-0, claim gpus: ResourceClaimTemplate team/x1 does not exist; create it",),
    ),
    "a template that cannot be read": Bad(
        a_job(1, claim=False),
        WAITS,
        ("ResourceClaimTemplate team/x1: spec.spec: is wrong; mend it",),
        unread("ResourceClaimTemplate", "team/x1", "spec.spec"),
    ),
    "a claim that is being deleted": Bad(
        a_job(1),
        WAITS,
        ("ResourceClaim team/bad-0-gpus is being deleted (finalizers example.org/keep); delete the pod as well",),
        claim("bad-0-gpus", lambda c: replace(c, meta=deleted(c.meta, "example.org/keep"))),
    ),
    "a class that does not exist": Bad(
        a_pod,
        NOWHERE,
        ("missing.example.com", "does not exist"),
        both(without_class, lambda s: s),
    ),
    "nodes without slices of what it asks for": Bad(a_pod, NOWHERE, ("selector",), asking(**RARE)),
    "a device twice in its pool": Bad(
        a_pod,
        NOWHERE,
        ("pool",),
        both(asking(**RARE), slices(a_slice("c1", "c", "gpu-0", count=2), a_slice("c2", "c", "gpu-0", count=2))),
    ),
    "a pool that is not complete": Bad(
        a_pod,
        HoldReason.POOL_INCOMPLETE,
        ("pool",),
        both(asking(**RARE), slices(a_slice("c1", "c", "gpu-0", count=2))),
    ),
    "a slice that cannot be read": Bad(
        a_pod,
        NOWHERE,
        ("; not counted, since it cannot be read: ResourceSlice c1: spec.devices: is wrong; mend it",),
        both(asking(**RARE), unread("ResourceSlice", "c1", "spec.devices")),
    ),
    "CEL that fails on the devices": Bad(
        a_pod, NOWHERE, ("no such key",), asking(selectors=[{"cel": {"expression": 'device.attributes["x"].y == 1'}}])
    ),
    "CEL that is none": Bad(a_pod, NOWHERE, ("does not compile",), asking(selectors=[{"cel": {"expression": "((("}}])),
}


def bad_cluster(bad: Bad) -> Cluster:
    """The bad gang, another that waits, and the good one, which came last."""
    builder = a_cluster().node("a", gpus=2).node("b", gpus=0).node("c", gpus=0)
    builder = bad.builder(builder.queue("q", gpus=8, unmeteredClasses="Allow"))
    builder.job("waiting", queue="q", pods=2, made=1).job("good", queue="q", pods=2)
    cluster = Cluster(builder)
    changed = bad.change(cluster.snapshot())
    cluster._rest, cluster._pods, cluster._claims = changed, dict(changed.pods), dict(changed.claims)
    cluster._jobs, cluster._gangs = dict(changed.jobs), dict(changed.gangs)
    return cluster


@pytest.mark.parametrize("barriers", [fence(), Barriers()], ids=["Allocate", "Pin"])
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
async def test_a_bad_gang_is_held_with_its_reason_and_stops_no_other_gang(bad: Bad, barriers: Barriers) -> None:
    cluster, ledger = bad_cluster(bad), in_memory.Ledger()
    leader = a_leader(cluster, ledger, barriers=barriers)

    result = await cycles(leader, 2)

    (report,) = [one for one in result.gangs if one.name.startswith("bad")]
    assert report.hold is not None
    assert (report.hold.reason, result.defects) == (bad.reason, ())
    for part in bad.says:
        assert part in report.hold.message
    assert cluster.let_in() == ["good-0", "good-1"]
    everything_runs(cluster, ledger, 2)
    assert len(kinds(ledger)) <= 2, "nothing is booked and given back again and again"


async def test_a_gang_starts_when_its_device_class_is_created_and_is_planned_again_when_it_changes() -> None:
    bad = BAD["a class that does not exist"]
    cluster, ledger = bad_cluster(bad), in_memory.Ledger()
    cluster.remove_pod("good-0")
    cluster.remove_pod("good-1")
    leader = a_leader(cluster, ledger)
    await cycles(leader, 2)
    known = cluster._rest.classes[CLASS]
    nothing = replace(known, meta=replace(known.meta, name="missing.example.com"), selectors=("false",))

    cluster._rest = replace(cluster._rest, classes={**cluster._rest.classes, "missing.example.com": nothing})
    result = await cycles(leader, 2)
    (report,) = [one for one in result.gangs if one.name.startswith("bad")]
    assert report.hold is not None
    assert "no node has a device of the class" in report.hold.message
    anything = replace(nothing, selectors=())
    cluster._rest = replace(cluster._rest, classes={**cluster._rest.classes, "missing.example.com": anything})
    await cycle.run(leader, NOON)

    assert cluster.let_in() == ["bad"]
