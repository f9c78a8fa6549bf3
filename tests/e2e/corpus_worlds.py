"""Worlds of the corpus on a real control plane, one after another: what kube-scheduler and Muster make of each.

Nothing is renamed: the names of slices, drivers and pools decide what first fit finds. So a world is put up as it was
recorded, one pod is pinned to the recorded node as Muster pins it, and everything goes before the next world comes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, assert_never

from admission.api.snapshot import Snapshot
from admission.api.values import quantities
from admission.api.values.names import NodeName
from admission.dra import compatibility
from admission.dra.allocator import node_allocator
from admission.dra.allocator.node_allocator import Allocated, NotHere
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests.requests import Fatal, Unpriced
from admission.dra.state import cluster_state
from admission.kube.cache import watched_resources
from tests.controlplane import fleet, placements, workloads
from tests.controlplane.clients import Client
from tests.controlplane.fleet import Manifest
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e.barriers import Barrier

Record = dict[str, Any]

POD = "asks"
OURS = "test.muster.dev/world"
SHARE = "<uuid>"
STEPS = 200_000
MOST_RESULTS = 32
WRITES_AT_ONCE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What becomes of a pod, in the corpus' words, with one allocation per claim; two are equal whatever was `said`."""

    outcome: str
    fatal: bool = False
    allocations: tuple[Manifest, ...] = ()
    said: str = field(default="", compare=False)


def recorded(record: Record, kubernetes: str) -> Answer:
    """Return what Kubernetes' allocator of this version answered without a cluster."""
    expect: Record = record["expect137"] if kubernetes != "1.36" and "expect137" in record else record["expect"]
    return Answer(
        outcome=expect["outcome"],
        fatal=bool(expect.get("fatal")),
        allocations=tuple(comparable(one) for one in expect.get("results", [])),
        said=expect.get("error", ""),
    )


def predicted(client: Client, version: str, claims: Sequence[str], *, node: str) -> Answer:
    """Return what Muster says of these claims, `namespace/name`, on a node, from what the API server serves now."""
    snapshot = snapshot_of(client)
    cluster = cluster_state.build(snapshot, (), profile=compatibility.of_version(version))
    selectors = Selectors(cluster.profile.cel)
    asked = [snapshot.claims[claim] for claim in claims]
    found = node_allocator.allocate(asked, NodeName(node), cluster, selectors=selectors, steps=STEPS)
    match found:
        case Allocated():
            shares = [SHARE] * MOST_RESULTS
            return Answer(outcome="allocated", allocations=tuple(comparable(one.json(shares)) for one in found.claims))
        case NotHere():
            return Answer(outcome="error" if found.invalid else "none", said=found.message)
        case Fatal() | Unpriced():
            return Answer(outcome="error", fatal=True, said=str(found))
        case _:
            assert_never(found)


def snapshot_of(client: Client) -> Snapshot:
    """Read what allocation depends on, with Muster's own decoders."""
    fields: dict[str, Any] = {}
    for kind in (
        watched_resources.NODES,
        watched_resources.SLICES,
        watched_resources.CLASSES,
        watched_resources.CLAIMS,
        watched_resources.TAINT_RULES,
    ):
        served = (seen for path in kind.paths if (seen := client.find(path)) is not None)
        listed: Manifest = next(served, {"items": []})
        decoded: list[Any] = [kind.decode(item) for item in listed["items"]]
        fields[kind.field] = {one.meta.key: one for one in decoded}
    return Snapshot(**fields)


def comparable(allocation: Manifest) -> Manifest:
    """Leave out when it was made, name every share alike, and read quantities as numbers."""
    devices = allocation.get("devices", {})
    bare = {key: value for key, value in allocation.items() if key not in {"allocationTimestamp", "devices"}}
    results = [_comparable_result(result) for result in devices.get("results", [])]
    return {**bare, "results": results, "config": devices.get("config", [])}


def _comparable_result(result: Manifest) -> Manifest:
    shared = {"shareID": SHARE} if result.get("shareID") else {}
    consumed = {name: quantities.parse(amount) for name, amount in result.get("consumedCapacity", {}).items()}
    return {**result, **shared, **({"consumedCapacity": consumed} if consumed else {})}


def pinned_pod(name: str, claims: Sequence[str], *, node: str, **more: Any) -> Manifest:
    """A pod with these claims, in order, that kube-scheduler may try on this one node only."""
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}}
    uses = [{"name": f"claim-{number}", "resourceClaimName": claim} for number, claim in enumerate(claims)]
    return workloads.pod(name, **{"resourceClaims": uses, "affinity": {"nodeAffinity": required}, **more})


def asked(namespace: Namespace, claims: Sequence[str], *, node: str) -> tuple[Answer, Answer]:
    """Pin a pod with these claims to a node; return what Muster predicts for it and what kube-scheduler does.

    kube-scheduler must have seen all that the answer depends on (a barrier): what the pod is told first is taken.
    """
    version = namespace.client.get("/version")["gitVersion"]
    prediction = predicted(namespace.client, version, [f"{namespace.name}/{claim}" for claim in claims], node=node)
    namespace.create(pinned_pod(POD, claims, node=node))
    happened = eventually(lambda: _verdict(namespace, claims), what=f"kube-scheduler answers pod {POD}")
    return prediction, happened


class Stage:
    """Puts up one world at a time and asks about it. Its nodes stay, with the labels of the world that needs them."""

    def __init__(self, namespace: Namespace, barrier: Barrier) -> None:
        self._namespace = namespace
        self._client = namespace.client
        self._barrier = barrier
        self._nodes: dict[str, Manifest] = {}

    def remove(self) -> None:
        fleet.remove(self._client, self._nodes.values())

    def ask(self, record: Record) -> tuple[Answer, Answer]:
        """Put up the record's world and return Muster's prediction and kube-scheduler's answer; leave no trace."""
        try:
            self._put_up(record)
            names = [claim["metadata"]["name"] for claim in record["claims"]]
            return asked(self._namespace, names, node=record["node"]["metadata"]["name"])
        finally:
            self._take_down()

    def _put_up(self, record: Record) -> None:
        self._place_node(record["node"])
        hardware = [marked(one) for one in (*record["classes"], *record["slices"])]
        held = list(holders(record))
        claims = [{**workloads.claim(one["metadata"]["name"]), "spec": one["spec"]} for one in record["claims"]]
        _each(lambda one: self._client.create(fleet.COLLECTIONS[one["kind"]], one), hardware)
        _each(self._namespace.create, [*(claim for claim, _ in held), *claims])
        for claim, allocation in held:
            placements.write_allocation(self._namespace, claim["metadata"]["name"], allocation)
        self._barrier.wait(self._namespace)

    def _place_node(self, node: Manifest) -> None:
        name = node["metadata"]["name"]
        if name not in self._nodes:
            self._nodes[name] = fleet.node(name)
            fleet.install(self._client, [self._nodes[name]])
        labels = {"op": "replace", "path": "/metadata/labels", "value": node["metadata"].get("labels", {})}
        self._client.json_patch(f"{fleet.COLLECTIONS['Node']}/{name}", [labels])

    def _take_down(self) -> None:
        self._namespace.empty()
        for kind in ("ResourceSlice", "DeviceClass"):
            self._client.delete(f"{fleet.COLLECTIONS[kind]}?labelSelector={OURS}")


def _verdict(namespace: Namespace, claims: Sequence[str]) -> Answer | None:
    pod = namespace.pod(POD)
    if pod["spec"].get("nodeName"):
        found = [namespace.claim(claim)["status"]["allocation"] for claim in claims]
        return Answer(outcome="allocated", allocations=tuple(comparable(one) for one in found))
    for condition in pod.get("status", {}).get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return refused(condition)
    for claim in claims:
        _meet_binding_conditions(namespace, namespace.claim(claim))
    return None


def _meet_binding_conditions(namespace: Namespace, claim: Any) -> None:
    """Do what a driver does for its devices once they are allocated; kube-scheduler looks every five seconds."""
    status = claim.get("status", {})
    results = status.get("allocation", {}).get("devices", {}).get("results", [])
    reports = [_ready(result) for result in results if result.get("bindingConditions")]
    if reports and not status.get("devices"):
        path = f"{namespace.claims}/{claim['metadata']['name']}/status"
        namespace.client.merge_patch(path, {"status": {"devices": reports}})


def refused(condition: Manifest) -> Answer:
    """Read the pod's condition: an error that ends the attempt, a node that cannot be judged, or plainly no."""
    said = condition.get("message", "")
    if condition["reason"] == "SchedulerError":
        return Answer(outcome="error", fatal=True, said=said)
    if "invalid resource pools were encountered" in said:
        return Answer(outcome="error", said=said)
    return Answer(outcome="none", said=said)


def marked(manifest: Manifest) -> Manifest:
    """Label an object of the world, by which it is found when the world goes."""
    return {**manifest, "metadata": {"name": manifest["metadata"]["name"], "labels": {OURS: "true"}}}


def holders(record: Record) -> Iterator[tuple[Manifest, Manifest]]:
    """Yield claims of others, each with the allocation by which it holds some of the record's taken devices.

    What the shares of a device use is recorded as one sum, so its first share holds all of it.
    """
    sums = {_device(one): one["capacity"] for one in record["consumedCapacity"]}
    results: list[Manifest] = [{"request": "held", **_names(one)} for one in record["allocated"]]
    for number, share in enumerate(record["sharedDevices"], start=1):
        used = sums.pop(_device(share), {})
        share_id = f"00000000-0000-4000-8000-{number:012}"
        results.append({"request": "held", **_names(share), "shareID": share_id, "consumedCapacity": used})
    assert not sums, f"{record['id']}: capacity is used of devices that nobody shares"
    for start in range(0, len(results), MOST_RESULTS):
        some = results[start : start + MOST_RESULTS]
        request = workloads.device_request("held", device_class="held.test", count=len(some))
        allocation = placements.allocation(node="", device="")
        yield (
            workloads.claim(f"others-{start}", request),
            {"allocationTimestamp": allocation["allocationTimestamp"], "devices": {"results": some}},
        )


def _names(one: Manifest) -> Manifest:
    return {key: one[key] for key in ("driver", "pool", "device")}


def _device(one: Manifest) -> tuple[str, ...]:
    return tuple(_names(one).values())


def _ready(result: Manifest) -> Manifest:
    now = placements.allocation(node="", device="")["allocationTimestamp"]
    conditions = [
        {"type": kind, "status": "True", "reason": "Attached", "message": "", "lastTransitionTime": now}
        for kind in result["bindingConditions"]
    ]
    share = {"shareID": result["shareID"]} if result.get("shareID") else {}
    return {**_names(result), **share, "conditions": conditions}


def _each(write: Callable[[Manifest], Any], manifests: Iterable[Manifest]) -> None:
    with ThreadPoolExecutor(WRITES_AT_ONCE) as threads:
        list(threads.map(write, manifests))
