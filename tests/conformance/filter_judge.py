"""What Muster's filters say of a world: the same question that `controlplane filters` asks of kube-scheduler.

Worlds and answers are described in `tests/controlplane/README.md`. Each pod of the gang is judged by the product's
filters beside all that is there, and placed before the next one is judged. What is not judged refuses nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from admission.api.kubernetes import nodes, pods
from admission.api.kubernetes.meta import EPOCH
from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Placement, Seat
from admission.api.snapshot import Snapshot
from admission.api.storage import csi, persistent_volumes
from admission.api.storage.persistent_volumes import ONE_POD
from admission.api.storage.storage import Storage
from admission.api.values.names import GangUid, NodeName, QueueName, Uid
from admission.dra import compatibility
from admission.dra.compatibility import Release
from admission.dra.inventory.selectors import Selectors
from admission.dra.planner import node_filters
from admission.dra.planner.node_filters import Filter
from admission.dra.requests.gang_request import PodDemand
from admission.dra.state import cluster_state, nominated_pods
from admission.dra.state.cluster_state import ClusterState
from admission.filters.pod_rules import PodRules
from admission.filters.refusal import Rule
from tests.conformance import device_judge

Json = dict[str, Any]
T = TypeVar("T")

GANG = GangUid("gang")

NODE_FILTERS = {
    Filter.UNSCHEDULABLE: ("NodeUnschedulable", "node(s) were unschedulable"),
    Filter.TAINT: ("TaintToleration", "node(s) had untolerated taint(s)"),
    Filter.NODE_SELECTOR: ("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"),
    Filter.FEATURES: ("NodeDeclaredFeatures", "node(s) didn't match Pod's required features"),
    Filter.AFFINITY: ("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"),
}
RULES = {
    Rule.PORTS: ("NodePorts", "node(s) didn't have free ports for the requested pod ports"),
    Rule.SPREAD: ("PodTopologySpread", "node(s) didn't match pod topology spread constraints"),
    Rule.SPREAD_DOMAINS: ("PodTopologySpread", "node(s) didn't match pod topology spread constraints"),
    Rule.SPREAD_LABEL: (
        "PodTopologySpread",
        "node(s) didn't match pod topology spread constraints (missing required label)",
    ),
    Rule.POD_AFFINITY: ("InterPodAffinity", "node(s) didn't match pod affinity rules"),
    Rule.POD_ANTI_AFFINITY: ("InterPodAffinity", "node(s) didn't match pod anti-affinity rules"),
    Rule.ANTI_AFFINITY_OF_OTHERS: ("InterPodAffinity", "node(s) didn't satisfy existing pods anti-affinity rules"),
    Rule.CLAIM: ("VolumeBinding", "pod has unbound immediate PersistentVolumeClaims"),
    Rule.VOLUME: ("VolumeBinding", "node(s) didn't match PersistentVolume's node affinity"),
    Rule.VOLUME_ZONE: ("VolumeZone", "node(s) had no available volume zone"),
    **dict.fromkeys(
        (Rule.SELECTED, Rule.NO_VOLUME, Rule.TOPOLOGIES),
        ("VolumeBinding", "node(s) didn't find available persistent volumes to bind"),
    ),
    Rule.SPACE: ("VolumeBinding", "node(s) did not have enough free storage"),
    Rule.DISK: ("VolumeRestrictions", "node(s) had no available disk"),
    Rule.SOLE: (
        "VolumeRestrictions",
        f"node(s) unavailable due to PersistentVolumeClaim with {ONE_POD} access mode already in-use by another pod",
    ),
    Rule.LIMIT: ("NodeVolumeLimits", "node(s) exceed max volume count"),
    Rule.DRIVER: ("NodeVolumeLimits", "CSI driver is not installed on the node"),
}


def answer(world: Mapping[str, Any], placed: Sequence[str] | None = None) -> Json:
    """Return what the filters say of each pod of a world's gang, in the form of `controlplane filters`.

    placed: the nodes of the pods, or empty text, as another answer has them, so that one difference does not bring
    others with it.
    """
    profile = compatibility.profile(Release(world.get("version", "1.37")))
    snapshot = Snapshot(
        nodes={node.name: node for node in map(nodes.decode, world.get("nodes") or ())},
        namespaces={one.meta.name: one for one in map(nodes.decode_namespace, world.get("namespaces") or ())},
        pods={pod.meta.uid: pod for pod in map(pod_of, world.get("pods") or ())},
        storage=storage_of(world),
    )
    snapshot = device_judge.with_devices(snapshot, dict(world))
    cluster, found = cluster_state.build(snapshot, (), profile=profile), []
    selectors, seats = Selectors(cluster.profile.cel), dict[Uid, Seat]()
    for number, one in enumerate(world.get("gang") or ()):
        pod = pod_of(one["pod"])
        demand = device_judge.demand_of(pod, snapshot)
        judged = judge(pod, cluster, demand, selectors)
        node = one.get("node") or next(iter(judged["fits"]), "")
        judged["node"] = placed[number] if placed is not None else node if node in judged["fits"] else ""
        found.append(judged)
        if judged["node"]:
            name = NodeName(judged["node"])
            snapshot = device_judge.placed(demand or PodDemand(pod=pod), name, cluster, snapshot, selectors)
            seats[pod.meta.uid] = Seat(pod_uid=pod.meta.uid, pod=pod.meta.key, node=name)
            placement = Placement(gang_uid=GANG, gang=GANG, queue=QueueName(""), reserved_at=EPOCH, seats=dict(seats))
            cluster = cluster_state.build(snapshot, [placement], profile=profile, before=cluster)
    return {"pods": found}


def judge(pod: Pod, cluster: ClusterState, demand: PodDemand | None, selectors: Selectors) -> Json:
    """Return the nodes that take a pod, and who refuses the others. demand: None if a claim of it is not there."""
    # Pods of the gang that came before are Reserved here: nobody is taken before them any more.
    cluster.placed.assumed(cluster.nodes).priorities.clear()
    rules, fits, refused = PodRules(pod, cluster.placed, cluster.nodes), [], {}
    plain = device_judge.without_rules(cluster)
    for name in sorted(cluster.nodes):
        refusal = refusal_of(pod, cluster.nodes[name], cluster, rules)
        if refusal is None and (demand is None or demand.claims):
            plan = device_judge.planned(demand, name, plain, selectors) if demand is not None else None
            refusal = ("DynamicResources", "cannot allocate all claims") if plan is None else None
        if refusal is None:
            fits.append(name)
        else:
            plugin, *reasons = refusal
            refused[name] = {"plugin": plugin, "reasons": reasons}
    return {"fits": fits, "refused": refused}


def refusal_of(pod: Pod, node: Node, cluster: ClusterState, rules: PodRules) -> tuple[str, ...] | None:
    """Return the first plugin that refuses a node, and its reasons."""
    demand, named = PodDemand(pod=pod), _named_nodes(pod)
    if named is not None and node.name not in named:
        return (
            "NodeAffinity",
            "node(s) didn't satisfy plugin(s) [NodeAffinity]" if named else "pod affinity terms conflict",
        )
    node_only = node_filters.refuses(demand, node, cluster)
    if node_only is not None and node_only.filter is not Filter.FEATURES:
        return NODE_FILTERS[node_only.filter]
    refusal = rules.refuses(node)
    if refusal is not None and refusal.rule is Rule.PORTS:
        return RULES[refusal.rule]
    left = nominated_pods.without_reserved([demand], cluster).left.get(node.name)
    # What a class offers is served by DRA on nodes without a device plugin, which is asked elsewhere.
    offered = {one.extended_resource for one in cluster.classes.values()} - {*(left or ())}
    wants = {name: amount for name, amount in node_filters.wants(demand).items() if name not in offered}
    lacking = [one for one in sorted(wants) if node_filters.lacking({one: wants[one]}, left) is not None]
    if lacking:
        return ("NodeResourcesFit", *("Too many pods" if one == "pods" else f"Insufficient {one}" for one in lacking))
    if refusal is not None:
        return RULES[refusal.rule]
    return NODE_FILTERS[node_only.filter] if node_only is not None else None


def _named_nodes(pod: Pod) -> frozenset[str] | None:
    """Return the nodes that a pod's node affinity names, which are the only ones that are looked at; None for all."""
    found: set[str] = set()
    for term in pod.affinity.terms if pod.affinity is not None else ():
        lists = [set(one.values) for one in term.fields if one.key == "metadata.name" and one.operator == "In"]
        if not lists:
            return None
        found |= set.intersection(*lists)
    return frozenset(found) if pod.affinity is not None and pod.affinity.terms else None


def storage_of(world: Mapping[str, Any]) -> Storage:
    """Return the storage objects of a world. As for pods, the oracle gives a UID to those that have none."""

    def decoded(kind: str, decode: Callable[[Json], T]) -> list[T]:
        return [decode(one) for one in world.get(kind) or ()]

    return Storage(
        volumes={one.meta.name: one for one in decoded("pvs", persistent_volumes.decode_volume)},
        claims={
            one.meta.key: replace(one, meta=replace(one.meta, uid=one.meta.uid or Uid(one.meta.key)))
            for one in decoded("pvcs", persistent_volumes.decode_claim)
        },
        classes={one.meta.name: one for one in decoded("storageClasses", persistent_volumes.decode_class)},
        nodes={one.meta.name: one for one in decoded("csiNodes", csi.decode_csi_node)},
        drivers={one.meta.name: one for one in decoded("csiDrivers", csi.decode_csi_driver)},
        capacities={one.meta.key: one for one in decoded("csiStorageCapacities", csi.decode_capacity)},
        attachments={one.meta.name: one for one in decoded("volumeAttachments", csi.decode_attachment)},
    )


def pod_of(manifest: Json) -> Pod:
    pod = pods.decode(manifest)
    return pod if pod.meta.uid else replace(pod, meta=replace(pod.meta, uid=Uid(pod.meta.key)))
