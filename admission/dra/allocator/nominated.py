"""A prediction of the devices that kube-scheduler will give to claims that do not get their planned devices.

Under `Pin` kube-scheduler picks the devices, pod by pod in its own order, and does not know the plan. Of two pods on
one node the second may come first and take the device that the first was planned on: the first then takes another
device of the node. A device that is freed after a plan was made may be the first fit of a pod that was planned on
another one. Until the real allocation of such claims is observed, the predicted devices count as taken in addition to
the booked ones; otherwise the node would be granted to more pods than it has devices for.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from admission.api.values.names import NodeName
from admission.dra.allocator import node_allocator
from admission.dra.allocator.allocation import AllocatedRequest
from admission.dra.allocator.node_allocator import Allocated
from admission.dra.allocator.results import StepsEndedError
from admission.dra.equivalence.usage_overlay import AllocatedOverlay, CombinedOverlay
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests.device_use import Holder
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState, Conflicted, PendingAllocation


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a pod gets when kube-scheduler schedules it. given: per claim; None if there are no devices for it."""

    pod: PendingAllocation
    given: tuple[tuple[AllocatedRequest, ...], ...] | None

    @property
    def holds(self) -> bool:
        """Return whether every claim gets what is booked for it."""
        return self.given is not None and all(
            sorted(one.request_device for one in given_devices) == sorted(planned)
            for given_devices, planned in zip(self.given, self.pod.devices, strict=True)
        )


def predict(cluster: ClusterState, *, selectors: Selectors, steps: int) -> ClusterState:
    """Return the state with a first fit taken for every claim that will not get, or keep, its planned devices.

    A claim without a first fit takes nothing: its gang does not start in time and is evicted. steps: for each pod.
    """
    unplanned = _usage_without_planned(cluster)
    for conflicted in cluster.conflicted:
        cluster = _reallocate(cluster, conflicted, unplanned, selectors, steps)
    for node, pods in cluster.pending.items():
        if _may_be_given_others(node, pods, cluster):
            cluster = _take_predicted(node, pods, cluster, selectors, steps)
    return cluster


def first_fit_holds(
    node: NodeName, pods: Sequence[PendingAllocation], cluster: ClusterState, *, selectors: Selectors, steps: int
) -> bool:
    """Return whether each of these pods gets the devices booked for it, if kube-scheduler schedules in this order.

    Raises StepsEndedError. pods: all that wait for devices of the node, in the order in which their gates were opened.
    """
    return all(prediction.holds for prediction in replayed(node, pods, cluster, selectors=selectors, steps=steps))


def replayed(
    node: NodeName, pods: Sequence[PendingAllocation], cluster: ClusterState, *, selectors: Selectors, steps: int
) -> tuple[Prediction, ...]:
    """Return what pods get one after the other; in use is everything but what is booked for these pods.

    Raises StepsEndedError.
    """
    usage = AllocatedOverlay(CombinedOverlay(cluster, {claim.meta.key for pod in pods for claim in pod.claims}))
    found: list[Prediction] = []
    for pod in pods:
        answer = node_allocator.allocate_with(usage, pod.claims, node, cluster, selectors=selectors, steps=steps)
        if isinstance(answer, Allocated):
            usage.add(use for uses in answer.uses for use in uses)
            found.append(Prediction(pod, tuple(result.given for result in answer.claims)))
        else:
            found.append(Prediction(pod, None))
    return tuple(found)


def _reallocate(
    cluster: ClusterState, conflicted: Conflicted, unplanned: AllocatedOverlay, selectors: Selectors, steps: int
) -> ClusterState:
    """Take a first fit for a conflicted claim: beside all booked devices or, if none is left, beside those in use."""
    for usage in (AllocatedOverlay(cluster), unplanned):
        try:
            answer = node_allocator.allocate_with(
                usage, [conflicted.claim], conflicted.node, cluster, selectors=selectors, steps=steps
            )
        except StepsEndedError:
            return cluster
        if isinstance(answer, Allocated):
            return cluster_state.with_devices(cluster, (use for uses in answer.uses for use in uses), conflicted.holder)
    return cluster


def _usage_without_planned(cluster: ClusterState) -> AllocatedOverlay:
    """Return the devices in use without those that are only booked for pending pods."""
    return CombinedOverlay(
        cluster, {claim.meta.key for pods in cluster.pending.values() for pod in pods for claim in pod.claims}
    )


def _may_be_given_others(node: NodeName, pods: Iterable[PendingAllocation], cluster: ClusterState) -> bool:
    """Return whether a pod on the node may get another device than the one booked for it.

    That takes a device that is not taken and comes before the last booked one in the node's order. A shared device is
    never taken, so it counts as well.
    """
    planned = {given.device for pod in pods for devices in pod.devices for given in devices}
    node_inventory = cluster.node_inventories.get(node)
    if node_inventory is None:
        return False
    listed_devices = [
        listed.id for pool in node_inventory.seen(cluster.profile.known_bugs) for listed in pool.listed_devices
    ]
    last = max((at for at, device in enumerate(listed_devices) if device in planned), default=-1)
    return any(device not in cluster.taken for device in listed_devices[: last + 1])


def _take_predicted(
    node: NodeName, pods: Sequence[PendingAllocation], cluster: ClusterState, selectors: Selectors, steps: int
) -> ClusterState:
    """Take the devices that pods of a node would get in addition to those booked for them."""
    try:
        predictions = replayed(node, pods, cluster, selectors=selectors, steps=steps)
    except StepsEndedError:
        return cluster
    for prediction in predictions:
        if prediction.given is None or prediction.holds:
            continue
        for claim, given, devices in zip(prediction.pod.claims, prediction.given, prediction.pod.devices, strict=True):
            planned = {result.device for result in devices}
            uses = [use for result in given if (use := result.use) is not None and use.device not in planned]
            # A device that is booked for another pod is taken already: the two pods swap.
            unbooked = [use for use in uses if use.shared or use.device not in cluster.taken]
            cluster = cluster_state.with_devices(
                cluster, unbooked, Holder(claim=claim.meta.key, gang=prediction.pod.gang)
            )
    return cluster
