"""Why no device that a pod's nodes see matches a request: driver, class, selectors or capacity."""

from collections.abc import Collection, Iterable, Sequence

from admission.api.values.names import NodeName
from admission.dra.compatibility import Features
from admission.dra.equivalence.device_signature import DeviceSignatures
from admission.dra.inventory.pools import InventoryDevice, PoolHealth
from admission.dra.inventory.selectors import Texts
from admission.dra.requests import capacity
from admission.dra.requests.capacity import Unfit, written
from admission.dra.requests.requests import ParsedRequest
from admission.dra.state.cluster_state import ClusterState

MOST_NAMED = 3


def reason(
    parsed: ParsedRequest,
    nodes: Collection[NodeName],
    cluster: ClusterState,
    device_signatures: DeviceSignatures,
    *,
    others: bool = True,
) -> str:
    """Return the first of these that fails: a driver, a device of the class, the selectors, the capacity.

    nodes: where the pod may go; none of their devices matches the request. others: whether to name nodes that have some
    of the class.
    """
    where = f"the {len(nodes)} nodes where the pod may go" if len(nodes) > 1 else "the only node where the pod may go"
    device_class = cluster.classes.get(parsed.device_class)
    class_texts = device_class.selectors if device_class is not None else ()

    def selected(texts: Texts, among: Iterable[NodeName]) -> list[InventoryDevice]:
        inventories = (cluster.node_inventories[name] for name in among if name in cluster.node_inventories)
        return [device for one in inventories for device in device_signatures.selected(texts, one)]

    of_class = len({device.id for device in selected(class_texts, nodes)})
    if not of_class:
        found = _nodes_with(class_texts, cluster, device_signatures)
        if found and not others:
            return f"no device of the class is on {where}"
        return _none_of_class(where, selected((), cluster.nodes), found)
    listed = selected(parsed.texts, nodes)
    if listed and parsed.needs:
        return _too_small(parsed, listed, cluster.profile.features)
    devices = "the only device" if of_class == 1 else f"none of the {of_class} devices"
    verb = "does not satisfy" if of_class == 1 else "satisfies"
    return f"{devices} of the class on {where} {verb} the selectors of the request"


def contradictory(nodes: Iterable[NodeName], cluster: ClusterState, device_signatures: DeviceSignatures) -> str:
    """Name an invalid pool of these nodes whose devices might match, if there is one, to be added to the reason."""
    for node in sorted(nodes):
        for pool in cluster.node_inventories[node].pools if node in cluster.node_inventories else ():
            if pool.soundness is PoolHealth.INVALID and device_signatures.may_serve(pool):
                return f"; {pool.title} on node {node} is not used ({pool.why}): its driver has to mend its slices"
    return ""


def _none_of_class(where: str, devices: Collection[InventoryDevice], others: Collection[NodeName]) -> str:
    """Explain that the nodes have no device of the class. devices: of all nodes; others: nodes that have some of it."""
    if others:
        named = sorted(others)
        rest = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        verb = "has" if len(named) == 1 else "have"
        return f"no device of the class is on {where}; {', '.join(named[:MOST_NAMED])}{rest} {verb} some"
    if not devices:
        return (
            "no ResourceSlice gives any node a device (is the driver of the class installed? are there nodes with its"
            " devices?)"
        )
    drivers = sorted({device.id.driver for device in devices})
    rest = f" and {len(drivers) - MOST_NAMED} more" if len(drivers) > MOST_NAMED else ""
    return (
        f"no node has a device of the class; there are {len({device.id for device in devices})} of"
        f" {', '.join(drivers[:MOST_NAMED])}{rest}, which the selectors of the class do not select (is its driver"
        " installed? are there nodes with its devices?)"
    )


def _nodes_with(texts: Texts, cluster: ClusterState, device_signatures: DeviceSignatures) -> list[NodeName]:
    inventories = cluster.node_inventories
    return [
        name for name in cluster.nodes if name in inventories and device_signatures.selected(texts, inventories[name])
    ]


def _too_small(parsed: ParsedRequest, listed: Sequence[InventoryDevice], features: Features) -> str:
    """Explain that the selected devices lack the capacity: which, how much is asked for, and what the largest has."""
    start = "the only device" if len(listed) == 1 else f"none of the {len(listed)} devices"
    start += " that the selectors choose"
    has = "has not" if len(listed) == 1 else "has"
    for name, needed in parsed.needs:
        having = [(one.device.capacity[name], one) for one in listed if name in one.device.capacity]
        if not having:
            return f"{start} {has} the capacity {name}, of which {written(needed)} is asked for"
        most, largest = max(having, key=lambda pair: pair[0].value)
        if most.value < needed:
            return f"{start} {has} {written(needed)} of capacity {name}; the most is {most.text} ({largest.id})"
    refusals = (
        capacity.consumed(parsed.needs, one.device.capacity, fractional=features.fractional_ranges) for one in listed
    )
    why = next(
        (f": {one.why}, {listed[at].id} for one" for at, one in enumerate(refusals) if isinstance(one, Unfit)), ""
    )
    return f"{start} {has} the capacity{why}"
