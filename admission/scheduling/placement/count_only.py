"""Admission by quota alone, for gangs with placement `Count`: no devices are planned.

A claim is charged for what it requests. That is known beforehand if a meter counts claims or devices; a gang is held if
its charge depends on the device (a selector, a capacity, a counter, a price, a request for all devices).
"""

from collections.abc import Sequence

from admission.api.kubernetes import device_taint_rules
from admission.api.kubernetes.claims import ALL, ClaimSpec, DeviceRequest, Request
from admission.api.muster.gangs import PlannedClaim, PlannedPod
from admission.api.muster.ledger_entries import Holding
from admission.api.muster.meters import AdminAccess, Measure
from admission.api.values import names
from admission.api.values.names import MeterName, NodeName, Uid
from admission.api.values.reasons import Hold, HoldReason
from admission.dra.diagnosis import supply
from admission.dra.inventory.selectors import Selectors
from admission.dra.metering import device_meters, holdings
from admission.dra.metering.device_meters import Meters
from admission.dra.requests.gang_request import Plan, PodDemand
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState
from admission.errors import AmountError
from admission.scheduling.placement.protection import Protections

ANYWHERE = NodeName("")
"""The node of a pod for which kube-scheduler chooses the node."""


class _UnknownError(Exception):
    """Raised in this module only: a claim's charge depends on its devices. The text names the meter and the reason."""


def plan(pods: Sequence[PodDemand], cluster: ClusterState, meters: Meters) -> Plan | Hold:
    """Return a plan without nodes and devices, with the gang's charge.

    Claims that are allocated or granted already are not charged again. Of alternatives the most expensive counts, meter
    by meter, until the allocation is observed.
    """
    held: dict[Uid, Holding] = {}
    planned: list[PlannedPod] = []
    try:
        for demand in pods:
            new = {cluster_state.key_of(claim): claim for claim in demand.claims if claim.allocation is None}
            own = {uid: claim for uid, claim in new.items() if uid not in held and uid not in cluster.pinned}
            held |= {uid: _holding(uid, claim.meta.key, claim.spec, meters) for uid, claim in own.items()}
            requested = holdings.of_node(demand.pod.requests, demand.by_devices)
            by_node = holdings.of_pod(meters, demand.pod.meta.uid, demand.pod.meta.key, requested)
            held |= {by_node.claim_uid: by_node} if by_node is not None else {}
            claims = tuple(PlannedClaim(uid=uid, claim=claim.meta.key, devices=()) for uid, claim in own.items())
            planned.append(PlannedPod(uid=demand.pod.meta.uid, pod=demand.pod.meta.key, node=ANYWHERE, claims=claims))
        charge = device_meters.added(holding.charge for holding in held.values())
    except (_UnknownError, AmountError) as error:
        return Hold(HoldReason.NOT_SIMULATED, f"placed by Count, the gang cannot be charged: {error}")
    return Plan(pods=tuple(planned), charge=charge, holdings=tuple(held.values()))


def barred(
    pods: Sequence[PodDemand], cluster: ClusterState, protections: Protections, selectors: Selectors
) -> Hold | None:
    """Hold a gang with a request that only fenced devices match, since kube-scheduler could never serve it.

    Requests for extended resources are not checked.
    """
    if not protections.closed:
        return None
    claims = {
        cluster_state.key_of(claim): claim
        for demand in pods
        for claim in demand.claims
        if claim.allocation is None and not names.is_extended_claim(claim.meta.uid)
    }
    found = supply.confined(
        [*claims.values()],
        protections.closed,
        cluster,
        selectors=selectors,
        tolerates=lambda toleration: toleration.tolerates(device_taint_rules.FENCE),
    )
    if found is None:
        return None
    return Hold(
        HoldReason.NO_FEASIBLE_PLACEMENT,
        f"claim {found.claim}: only devices of driver {found.driver} match request {found.request}, and these are"
        " fenced: kube-scheduler gives them to nobody, and under placement Count Muster gives none; choose placement"
        " Auto or Allocate, or take the driver from the setting `fence`",
        {"claim": found.claim, "request": found.request, "driver": found.driver},
    )


def _holding(uid: Uid, key: str, spec: ClaimSpec, meters: Meters) -> Holding:
    charge = {name: amount for name in meters.meters if (amount := _amount(meters, name, key, spec))}
    return Holding(claim_uid=uid, claim=key, devices=(), charge=charge, classes=_classes(spec))


def _amount(meters: Meters, name: MeterName, key: str, spec: ClaimSpec) -> int:
    """Return the amount of a claim on one meter. Raises _UnknownError."""
    counted = sum(max(_devices(meters, name, key, o) for o in request.alternatives) for request in spec.requests)
    claims = sum(
        rule.source.measure is Measure.CLAIMS
        and any(_requested(request, rule.classes, meters, name) for request in spec.requests)
        for rule in meters.rules[name]
    )
    return counted + claims


def _devices(meters: Meters, name: MeterName, key: str, option: DeviceRequest) -> int:
    """Return for how many devices a request is charged. Raises _UnknownError."""
    rules = [rule for rule in meters.rules[name] if option.device_class in rule.classes]
    if not rules or _is_free(meters, name, option):
        return 0
    if name in meters.problems:
        raise _UnknownError(f"meter {name} cannot be used: {meters.problems[name][0]}")
    if not meters.certain(name, option.device_class):
        raise _UnknownError(f"claim {key}: meter {name} needs to know the devices of class {option.device_class}")
    counting = sum(rule.source.measure is Measure.COUNT for rule in rules)
    if counting and option.mode == ALL:
        raise _UnknownError(
            f"claim {key}: request {option.name} is for all devices, and how many that are is not known"
        )
    return counting * option.count


def _requested(request: Request, classes: frozenset[str], meters: Meters, name: MeterName) -> bool:
    return any(option.device_class in classes and not _is_free(meters, name, option) for option in request.alternatives)


def _is_free(meters: Meters, name: MeterName, option: DeviceRequest) -> bool:
    return bool(option.admin_access) and meters.meters[name].admin_access is AdminAccess.FREE


def _classes(spec: ClaimSpec) -> dict[str, int]:
    """Return how many devices of each class a claim requests, as far as that is certain."""
    found: dict[str, int] = {}
    for request in spec.requests:
        (option, *others) = request.alternatives
        if not others and option.mode != ALL and not option.admin_access:
            found[option.device_class] = found.get(option.device_class, 0) + option.count
    return found
