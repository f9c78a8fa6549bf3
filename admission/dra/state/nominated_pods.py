"""The pods for which kube-scheduler keeps a node, as after it has preempted others there for them."""

from collections.abc import Sequence

from admission.api.kubernetes.pods import Pod
from admission.api.values.names import NodeName
from admission.dra.requests.gang_request import PodDemand
from admission.dra.state import what_if
from admission.dra.state.cluster_state import ClusterState


def without_reserved(demands: Sequence[PodDemand], cluster: ClusterState) -> ClusterState:
    """Return the cluster state in which nodes lack what is kept there for others; the same one if nothing is.

    kube-scheduler keeps it from pods of no higher priority (`RunFilterPluginsWithNominatedPods`,
    `pkg/scheduler/framework/runtime/framework.go`, v1.37). What is kept from one pod of a gang counts for all of its
    pods. The rules between pods ask of each pod by itself (`filters.pod_rules`). The devices of these pods do not
    count, as in kube-scheduler: nobody has chosen them.
    """
    kept = _kept(demands, cluster)
    if not kept:
        return cluster
    is_before_1_37 = cluster.profile.release.before_1_37
    reserved = {
        node: [pod.counted_by_1_36 if is_before_1_37 else pod.counted for pod in pods] for node, pods in kept.items()
    }
    return what_if.with_reserved(cluster, reserved)


def kept_from(demands: Sequence[PodDemand], cluster: ClusterState) -> list[NodeName]:
    """Return the nodes that are kept for others."""
    return sorted(_kept(demands, cluster))


def _kept(demands: Sequence[PodDemand], cluster: ClusterState) -> dict[NodeName, list[Pod]]:
    nominated = cluster.placed.nominated
    if not nominated or not demands:
        return {}
    lowest = min(demand.pod.priority for demand in demands)
    found = {node: [pod for pod in pods if pod.priority >= lowest] for node, pods in nominated.items()}
    return {node: pods for node, pods in found.items() if pods}
