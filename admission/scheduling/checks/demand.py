"""The demands of a gang's pending pods, and a lower bound on their charge."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.nodes import Node
from admission.api.muster.gangs import Charge
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import MeterName
from admission.api.values.reasons import Hold, HoldReason
from admission.dra import compatibility
from admission.dra.metering import device_meters, holdings
from admission.dra.metering.device_meters import Meters
from admission.dra.requests import extended_resources
from admission.dra.requests.gang_request import PodDemand
from admission.workloads.gangs import Group


def demands(group: Group, snapshot: Snapshot) -> tuple[PodDemand, ...]:
    """Return the demands of the pending pods. Claims that do not exist yet are left out: `claims_exist` holds these."""
    found = []
    for pod in group.waiting:
        wanted = (pod.claim_name(claim) for claim in pod.claims)
        claims = [snapshot.claims.get(f"{pod.meta.namespace}/{name}") for name in wanted if name]
        offered = extended_resources.resources_of(pod.containers, snapshot.classes)
        claims.append(extended_resources.claim_of(pod, snapshot.classes) if offered else None)
        known = tuple(claim for claim in claims if claim is not None)
        found.append(PodDemand(pod=pod, claims=known, extended=offered))
    return tuple(found)


def new_claims(pods: Iterable[PodDemand]) -> list[Claim]:
    """Return the claims that are still to be allocated, each once."""
    found = {claim.meta.uid: claim for demand in pods for claim in demand.claims if claim.allocation is None}
    return list(found.values())


def unpredictable(pods: Iterable[PodDemand]) -> Hold | None:
    """Hold a gang that needs devices where nothing is known of the kube-scheduler that picks them."""
    claims = new_claims(pods)
    if not claims:
        return None
    message = (
        f"claim {claims[0].meta.key} needs devices, and what kube-scheduler does with these before Kubernetes "
        f"{compatibility.BY_VERSION[0]} is not known, so nothing can be promised; upgrade Kubernetes, or set "
        "controller.profile and accept that plans may fail"
    )
    return Hold(HoldReason.NOT_SIMULATED, message, {"claim": claims[0].meta.key})


def is_certain(pods: Sequence[PodDemand], meters: Meters) -> bool:
    """Return whether a gang is charged what `at_least` says, whichever devices it gets."""
    return not open_meters(pods, meters)


def open_meters(pods: Sequence[PodDemand], meters: Meters) -> frozenset[MeterName]:
    """Return the meters of which a gang may be charged more than `at_least` says, by the devices that it gets."""
    requests = [request for claim in new_claims(pods) for request in claim.spec.requests]
    if any(request.first_available for request in requests) or any(one.extended for one in pods):
        return frozenset(meters.meters)
    options = [option for request in requests for option in request.alternatives]
    return frozenset(name for name in meters.meters if not all(meters.is_exact(name, one) for one in options))


def at_least(pods: Sequence[PodDemand], meters: Meters, nodes: Collection[Node]) -> Charge:
    """Return a lower bound on a gang's charge: each claim once, those already allocated not at all.

    Extended resources count with the cheaper of device plugins and DRA devices, beside all else that pods request of
    nodes.
    """
    total: dict[MeterName, int] = {}
    named = (claim for claim in new_claims(pods) if not names.is_extended_claim(claim.meta.uid))
    bounds = (device_meters.lower_bound(meters, claim.spec) for claim in named)
    for charge in (*bounds, *_at_least_of_pods(pods, meters, nodes)):
        for meter, amount in charge.items():
            total[meter] = total.get(meter, 0) + amount
    return total


def _at_least_of_pods(pods: Sequence[PodDemand], meters: Meters, nodes: Collection[Node]) -> Iterator[Charge]:
    """Yield lower bounds on the charge of what each pod requests of its node, or of devices without naming a claim."""
    plugged: dict[tuple[str, ...], bool] = {}
    for demand in pods:
        offered = demand.extended
        if offered not in plugged:
            plugged[offered] = bool(offered) and any(extended_resources.plugged(node, offered) for node in nodes)
        claim = demand.claims[-1].spec if offered else None
        if claim is not None and not plugged[offered]:
            yield device_meters.lower_bound(meters, claim)
            yield holdings.charge(meters, holdings.of_node(demand.pod.requests, offered))
        else:
            specs = extended_resources.by_resource(claim, demand.pod.containers) if claim is not None else {}
            yield holdings.least(meters, holdings.of_node(demand.pod.requests), specs)
