"""The supply for a request: how many devices exist, in use or not, a bound that waiting cannot change.

Devices are counted per node, by class and request selectors alone; a request within these numbers may still not fit,
which the planner decides.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import DeviceId, Slice
from admission.api.values.selectors import Toleration
from admission.dra.allocator import node_allocator
from admission.dra.equivalence import device_signature
from admission.dra.equivalence.device_signature import Answer, DeviceSignatures
from admission.dra.inventory.selectors import Selectors, Texts
from admission.dra.requests import requests
from admission.dra.requests.requests import Fatal, RequestAlternatives
from admission.dra.state.cluster_state import ClusterState


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """The devices that match a request.

    everywhere: in the cluster. at_most: on one node. sharable: whether one of them may serve several requests, so that
    their number is no bound. broken: the first device on which a selector fails, and why.
    """

    everywhere: int
    at_most: int
    sharable: bool
    broken: tuple[DeviceId, str] | None = None


def supply(texts: Texts, slices: Iterable[Slice], selectors: Selectors) -> Supply:
    """Count the devices that the texts select. texts: those of the class, then those of the request."""
    by_node: dict[str, int] = {}
    everywhere = unbound = 0
    sharable = False
    broken: tuple[DeviceId, str] | None = None
    for slice_ in slices:
        column = selectors.column(texts, slice_)
        for at, device in enumerate(slice_.devices):
            if column.bad >> at & 1 and broken is None:
                broken = DeviceId(slice_.driver, slice_.pool, device.name), selectors.error(texts, slice_, at)
            if not column.yes >> at & 1:
                continue
            everywhere += 1
            sharable = sharable or device.allows_multiple
            node = slice_.node_name or device.node_name
            if node:
                by_node[node] = by_node.get(node, 0) + 1
            else:
                unbound += 1
    at_most = unbound + max(by_node.values(), default=0)
    return Supply(everywhere=everywhere, at_most=at_most, sharable=sharable, broken=broken)


def types(slices: Iterable[Slice]) -> dict[tuple[str, str], set[str]]:
    """Return the types that devices give their attributes, by domain and name."""
    found: dict[tuple[str, str], set[str]] = {}
    for slice_ in slices:
        for device in slice_.devices:
            for written, value in device.attributes.items():
                domain, slash, name = written.partition("/")
                key = (domain, name) if slash else (slice_.driver, written)
                found.setdefault(key, set()).add(_TYPES.get(type(value).__name__, "list"))
    return found


_TYPES = {"Version": "version", "str": "string", "int": "int", "bool": "bool"}


@dataclass(frozen=True, slots=True)
class Confined:
    """A request that only devices of certain drivers match. claim: its key. driver: the first of them by name."""

    claim: str
    request: str
    driver: str


def confined(
    claims: Sequence[Claim],
    drivers: Collection[str],
    cluster: ClusterState,
    *,
    selectors: Selectors,
    tolerates: Callable[[Toleration], bool],
) -> Confined | None:
    """Return the first request that only devices of these drivers match, in all of its alternatives.

    Called where the devices of these drivers are fenced and a claim is admitted without a plan: the request could never
    be served. Not confined is a request that no device matches, or that tolerates the taint of the fence. None for
    claims on which kube-scheduler would give up.
    """
    parsed_claims = node_allocator.compile_claims(claims, cluster)
    if isinstance(parsed_claims, Fatal):
        return None
    known = device_signature.build(
        device_signature.Need(requests.parsed_requests(parsed_claims), profile=cluster.profile), selectors
    )
    for claim, one in zip(claims, parsed_claims, strict=True):
        for request in one.requests:
            if any(tolerates(toleration) for option in request.options for toleration in option.parsed.tolerations):
                continue
            found = _drivers(request, known, cluster)
            if found and found <= set(drivers):
                return Confined(claim.meta.key, request.name, min(found))
    return None


def _drivers(request: RequestAlternatives, known: DeviceSignatures, cluster: ClusterState) -> set[str]:
    """Return the drivers whose devices match a request, in use or not."""
    numbers = [known.parsed_requests[option.parsed] for option in request.options]
    return {driver for driver, answers in _devices(known, cluster) if any(answers[at] is Answer.YES for at in numbers)}


def _devices(known: DeviceSignatures, cluster: ClusterState) -> Iterable[tuple[str, Sequence[object]]]:
    for node_inventory in cluster.node_inventories.values():
        layout = known.layout(node_inventory)
        for listed, number in zip(layout.listed_devices, layout.numbers, strict=True):
            yield listed.id.driver, known.known[number].answers
