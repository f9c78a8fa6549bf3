"""Devices that are more than whole cards, through whole cycles: what is reserved, settled and given back, and when."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from admission.accounting.books import Book
from admission.api.kubernetes import claims, devices, pods as kubernetes_pods
from admission.api.kubernetes.claims import Claim
from admission.api.muster import meters
from admission.api.muster.ledger_entries import Kind
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import QueueName, Uid
from admission.api.values.reasons import HoldReason
from admission.cycle.state.result import CycleResult
from admission.simulation import opening_balance
from admission.workloads import gangs
from tests.builders import CLASS, NAMESPACE, NOON, ClusterBuilder, a_cluster, claim_manifest
from tests.unit.cycle.test_cycle import GPUS, Cluster, Ledger, a_leader, gang, kinds, run

Q = QueueName("q")
RESOURCE = "example.com/gpu"
SHARED: dict[str, Any] = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "40Gi"}}}
OFFERED = devices.decode_class({"metadata": {"name": CLASS}, "spec": {"extendedResourceName": RESOURCE}})


class Shaped(ClusterBuilder):
    """A cluster of one node whose devices are like this, and whose Jobs' claims ask for that."""

    def __init__(self, *devices: Mapping[str, Any]) -> None:
        super().__init__()
        self.node("a").queue("q", gpus=100)
        self._shapes = devices
        self._asked: dict[str, Mapping[str, Any]] = {}

    def asking(self, name: str, *, pods: int = 1, **exactly: Any) -> "Shaped":
        """Add a Job whose claims ask for this."""
        self.job(name, queue="q", pods=pods)
        self._asked[name] = {"deviceClassName": CLASS, **exactly}
        return self

    def extended(self, name: str, *, pods: int = 1, count: int = 1) -> "Shaped":
        """Add a Job whose pods ask for so many of the extended resource."""
        self.job(name, queue="q", pods=pods, gpus=0)
        wanted = {RESOURCE: str(count)}
        body = {"spec": {"containers": [{"name": "main", "resources": {"requests": wanted, "limits": wanted}}]}}
        asked = kubernetes_pods.decode({"metadata": {"name": "-"}, **body})
        for at, pod in enumerate(self._pods):
            if pod.meta.name.startswith(f"{name}-"):
                self._pods[at] = replace(pod, requests=asked.requests, containers=asked.containers)
        return self

    def snapshot(self) -> Snapshot:
        listed = [{"name": f"gpu-{at}", **shape} for at, shape in enumerate(self._shapes)]
        pool = {"name": "a", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": CLASS, "nodeName": "a", "pool": pool, "devices": listed}
        piece = devices.decode_slice({"metadata": {"name": "a", "uid": "a", "resourceVersion": "1"}, "spec": spec})
        made = super().snapshot()
        found = {key: self._asking(claim) for key, claim in made.claims.items()}
        return replace(made, slices={"a": piece}, classes={CLASS: OFFERED}, claims=found)

    def _asking(self, claim: Claim) -> Claim:
        asked = self._asked[claim.meta.name.rsplit("-", 2)[0]]
        manifest = {"metadata": {"name": "-"}, "spec": {"devices": {"requests": [{"name": "gpu", "exactly": asked}]}}}
        return replace(claim, spec=claims.decode(manifest).spec)


def share(memory: str) -> dict[str, Any]:
    return {"capacity": {"requests": {"memory": memory}}}


def held(result: CycleResult, name: str) -> str | None:
    hold = gang(result, name).hold
    return hold.reason if hold is not None else None


def usage(ledger: Ledger) -> tuple[int, int]:
    return ledger.book.usage().get(Q, {}).get(GPUS, (0, 0))


def extended_of(pod: str) -> Uid:
    return names.extended_claim(Uid(f"pod-{pod}"))


async def test_shares_of_a_device_are_followed_from_the_grant_to_the_end() -> None:
    """Two gangs granted in one cycle fill the device; allocated they still do, and no more than that."""
    builder = Shaped(SHARED).asking("one", pods=2, **share("10Gi")).asking("two", **share("16Gi"))
    cluster, ledger = Cluster(builder.asking("three", **share("8Gi")).asking("four", **share("4Gi"))), Ledger()
    leader = a_leader(cluster, ledger)

    granted = await run(leader)
    assert (held(granted, "three"), held(granted, "four")) == (HoldReason.DEVICES_BUSY, None)
    started = cluster.schedule(ledger.book)
    settled = await run(leader)
    assert held(settled, "three") == HoldReason.DEVICES_BUSY
    assert usage(ledger) == (0, 4)

    cluster.finish([pod for pod in started if pod.meta.name == "two-0"])
    await run(leader)
    assert "three-0" in dict(cluster.opened)


async def test_a_claim_with_admin_access_takes_no_device_before_and_after_its_allocation() -> None:
    watching = Shaped({}, {}).asking("watch", allocationMode="All", adminAccess=True).asking("one")
    cluster, ledger = Cluster(watching), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    assert usage(ledger) == (1, 0)

    cluster.schedule(ledger.book)
    add(cluster, Shaped({}, {}).asking("late").snapshot())
    await run(leader)

    assert {name for name, _ in cluster.opened} == {"watch-0", "one-0", "late-0"}
    assert usage(ledger) == (1, 1)


def add(cluster: Cluster, more: Snapshot) -> None:
    """Put pods with their claims and Jobs into a cluster that runs."""
    cluster._pods |= more.pods
    cluster._claims |= more.claims
    cluster._jobs |= more.jobs


async def test_extended_resources_are_reserved_settled_and_released_with_their_pods() -> None:
    cluster, ledger = Cluster(Shaped({}, {}).extended("train", pods=2).extended("next")), Ledger()
    leader = a_leader(cluster, ledger)
    first = await run(leader)
    assert usage(ledger) == (2, 0)
    assert held(first, "next") == HoldReason.DEVICES_BUSY

    started = cluster.schedule(ledger.book)
    await run(leader)
    assert usage(ledger) == (0, 2)
    assert kinds(ledger) == [Kind.RESERVE, Kind.SETTLE]
    cluster.finish(started)
    await run(leader)

    assert "next-0" in dict(cluster.opened)
    assert usage(ledger) == (1, 0)


async def test_extended_resources_stay_reserved_while_no_claim_is_made_also_for_the_next_leader() -> None:
    cluster, ledger = Cluster(Shaped({}, {}).extended("train", pods=2).extended("next")), Ledger()
    await run(a_leader(cluster, ledger))

    await run(a_leader(cluster, ledger))
    result = await run(a_leader(cluster, ledger))

    assert usage(ledger) == (2, 0)
    assert held(result, "next") == HoldReason.DEVICES_BUSY
    assert kinds(ledger) == [Kind.RESERVE]


async def test_extended_resources_stay_charged_while_kube_scheduler_creates_their_claim_again() -> None:
    """It deletes the claim when it cannot bind the pod after all, and makes another with the next try."""
    cluster, ledger = Cluster(Shaped({}, {}).extended("train").extended("next", count=2)), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    (pod,) = cluster.schedule(ledger.book)
    await run(leader)
    made = cluster._claims.pop("team/train-0-extended-resources")
    cluster._pods[pod.meta.uid] = replace(pod, node=names.NodeName(""), phase="Pending")

    result = await run(a_leader(cluster, ledger))
    assert usage(ledger) == (0, 1)
    assert held(result, "next") == HoldReason.DEVICES_BUSY

    assert made.allocation is not None
    (given,) = made.allocation.devices
    other = replace(given, given=replace(given.given, device=given.device._replace(device="gpu-1")))
    cluster._claims["team/another-name"] = replace(made, allocation=replace(made.allocation, devices=(other,)))
    await run(leader)

    assert kinds(ledger) == [Kind.RESERVE, Kind.SETTLE, Kind.ADJUST]
    assert ledger.book.placements[names.GangUid("job-train")].holdings[extended_of("train-0")].devices == (other.given,)


async def test_extended_resources_of_a_pod_that_goes_before_it_is_bound_are_released() -> None:
    cluster, ledger = Cluster(Shaped({}, {}).extended("train").extended("next", count=2)), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    del cluster._pods[Uid("pod-train-0")]

    for _ in range(2):
        await run(leader)

    assert "next-0" in dict(cluster.opened)
    assert usage(ledger) == (2, 0)


async def test_a_claim_that_gangs_of_two_queues_share_is_paid_by_the_first_until_it_is_free() -> None:
    builder = a_cluster().node("a", gpus=1).queue("q", gpus=1).queue("r", gpus=1)
    cluster, ledger = Cluster(builder.pod("one", gpus=0).pod("two", queue="r", gpus=0)), Ledger()
    share_claim(cluster, "one", "two")
    leader = a_leader(cluster, ledger)
    await run(leader)
    assert amounts(ledger) == {"q": (1, 0)}

    one, _ = cluster.schedule(ledger.book)
    await run(leader)
    assert amounts(ledger) == {"q": (0, 1)}
    cluster.finish([one])
    await run(leader)
    assert amounts(ledger) == {"q": (0, 1)}, "its pods have ended, and the other gang still uses the device"

    cluster.finish([pod for pod in cluster.snapshot().pods.values() if pod.meta.name == "two"])
    await run(leader)
    assert amounts(ledger) == {}


async def test_a_claim_that_pods_of_a_gang_share_is_paid_once() -> None:
    cluster, ledger = (
        Cluster(a_cluster().node("a", gpus=1).queue("q", gpus=1).job("j", queue="q", pods=3, gpus=0)),
        Ledger(),
    )
    share_claim(cluster, "j-0", "j-1", "j-2")
    leader = a_leader(cluster, ledger)
    await run(leader)
    cluster.schedule(ledger.book)
    await run(leader)

    assert amounts(ledger) == {"q": (0, 1)}
    (holding,) = ledger.book.placements[names.GangUid("job-j")].holdings.values()
    assert holding.classes == {CLASS: 1}


def share_claim(cluster: Cluster, *pods: str) -> None:
    """Let these pods use one claim, which is nobody's own."""
    for name in pods:
        uid = Uid(f"pod-{name}")
        cluster._pods[uid] = replace(cluster._pods[uid], claims=(kubernetes_pods.PodClaim(name="s", claim="S"),))
    shared = claims.decode(claim_manifest("S", 1, owner="-"))
    cluster._claims["team/S"] = replace(shared, meta=replace(shared.meta, owners=()))


def amounts(ledger: Ledger) -> dict[str, tuple[int, int]]:
    """Return what each queue has reserved and used, if anything."""
    found = {queue: uses[GPUS] for queue, uses in ledger.book.usage().items() if GPUS in uses}
    return {queue: (use.reserved, use.used) for queue, use in found.items() if any(use)}


async def test_partitions_are_charged_for_the_counters_that_they_draw() -> None:
    """Settled to what was given: another partition than planned draws something else."""
    sets = [{"name": "card", "counters": {"slices": {"value": "7"}}}]
    parts = [{"consumesCounters": [{"counterSet": "card", "counters": {"slices": {"value": n}}}]} for n in ("3", "2")]
    builder = Shaped(*parts).asking("train")
    slices = {"deviceClasses": [CLASS], "counter": {"name": "slices"}}
    builder._meters[1] = meters.decode({"metadata": {"name": "gpus", "generation": 1}, "spec": {"sources": [slices]}})
    snapshot = builder.snapshot()
    counters = devices.decode_slice(
        {
            "metadata": {"name": "a-counters", "uid": "c", "resourceVersion": "1"},
            "spec": {
                "driver": CLASS,
                "nodeName": "a",
                "pool": {"name": "a", "generation": 1, "resourceSliceCount": 2},
                "sharedCounters": sets,
            },
        }
    )
    whole = replace(snapshot.slices["a"], slice_count=2)
    cluster, ledger = Cluster(builder), Ledger()
    cluster._rest = replace(cluster._rest, slices={"a": whole, "b": counters})
    leader = a_leader(cluster, ledger)
    await run(leader)
    assert usage(ledger) == (3, 0)

    (pod,) = cluster.schedule(ledger.book)
    claim = cluster._claims[f"team/{pod.claim_name(pod.claims[0])}"]
    assert claim.allocation is not None
    (given,) = claim.allocation.devices
    other = replace(given, given=replace(given.given, device=given.device._replace(device="gpu-1")))
    cluster._claims[claim.meta.key] = replace(claim, allocation=replace(claim.allocation, devices=(other,)))
    await run(leader)

    assert usage(ledger) == (0, 2)


def test_the_opening_balance_charges_running_pods_for_extended_resources() -> None:
    snapshot = Shaped({}, {}).extended("train").snapshot()
    (pod,) = snapshot.pods.values()
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.meta.name, "uid": pod.meta.uid, "controller": True}
    made = claims.decode(
        {
            "metadata": {
                "name": "train-0-extended-resources-x7k2p",
                "namespace": NAMESPACE,
                "uid": "made",
                "ownerReferences": [owner],
            },
            "spec": {
                "devices": {"requests": [{"name": "container-0-request-0", "exactly": {"deviceClassName": CLASS}}]}
            },
            "status": {
                "allocation": {"devices": {"results": [_result("container-0-request-0")]}},
                "reservedFor": [{"resource": "pods", "name": pod.meta.name, "uid": pod.meta.uid}],
            },
        }
    )
    running = replace(pod, gates=(), node=names.NodeName("a"), phase="Running")
    snapshot = replace(snapshot, pods={pod.meta.uid: running}, claims={made.meta.key: made})

    entries = opening_balance.entries(gangs.groups(snapshot, {}), snapshot, at=NOON, actor="test")

    book = Book.replay(entries)
    assert book.usage()[Q][GPUS] == (0, 1)
    assert list(book.placements[names.GangUid("job-train")].holdings) == [extended_of("train-0")]


def _result(request: str) -> dict[str, str]:
    return {"request": request, "driver": CLASS, "pool": "a", "device": "gpu-0"}
