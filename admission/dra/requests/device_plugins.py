"""The ways in which device plugins may serve extended resources of a gang, and DRA devices the others.

kube-scheduler decides for each resource on each node: a device plugin serves it where the node has it in allocatable,
devices everywhere else. Muster decides for each resource of a gang, so that pods that are equal stay equal: all of its
pods get a resource from device plugins, or all from devices.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations, islice

from admission.api.kubernetes.devices import DeviceClass
from admission.api.kubernetes.nodes import Node
from admission.dra.requests import extended_resources
from admission.dra.requests.gang_request import PodDemand

MOST_WAYS = 16
"""The most ways that are tried for a gang: all of those for up to four resources that some device plugin has."""


def ways(
    pods: Sequence[PodDemand], nodes: Iterable[Node], classes: Mapping[str, DeviceClass]
) -> Iterator[Sequence[PodDemand]]:
    """Yield the pods as they are, with all from devices, then with resources that some node has from its plugin.

    First all of those, then the fewest first.
    """
    yield pods
    offered = {resource for demand in pods for resource in demand.extended}
    if not offered:
        return
    plugged = sorted({resource for node in nodes for resource in extended_resources.plugged(node, offered)})
    parts = chain.from_iterable(combinations(plugged, count) for count in range(1, len(plugged)))
    for chosen in islice(chain([plugged] if plugged else [], parts), MOST_WAYS - 1):
        yield [with_plugins(demand, chosen, classes) for demand in pods]


def with_plugins(demand: PodDemand, plugged: Collection[str], classes: Mapping[str, DeviceClass]) -> PodDemand:
    """Return the pod with these of its extended resources, if it has any, served by device plugins."""
    own = frozenset(demand.extended).intersection(plugged)
    if not own:
        return demand
    claim = extended_resources.claim_of(demand.pod, classes, own)
    return replace(demand, claims=(*demand.claims[:-1], *filter(None, (claim,))), plugged=own)
