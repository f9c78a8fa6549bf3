"""Opening balances: the entries of running gangs, as a controller that admitted them would have posted them.

For `muster simulate`: a dump shows the running pods, but not the ledger. Every gang is granted what its claims are
allocated, at the price of today's meters, and settled at once.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from admission.accounting import books
from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import Device, DeviceId
from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import Charge
from admission.api.muster.ledger_entries import Entry, Holding, Seat
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import Uid
from admission.dra.metering import device_meters, holdings
from admission.dra.metering.device_meters import ChargeError, Meters, PricedDevice
from admission.dra.requests import extended_resources
from admission.errors import FixError
from admission.lifecycle import transitions
from admission.workloads.gangs import Group

BoundPods = list[tuple[Pod, list[Claim]]]
"""Bound pods, each with its allocated claims."""


def entries(groups: Iterable[Group], snapshot: Snapshot, *, at: datetime, actor: str) -> Iterator[Entry]:
    """Yield a reservation and a settlement for each gang. A shared claim is charged to the first of its gangs.

    Raises FixError if an allocated device cannot be priced.
    """
    meters = device_meters.compile_meters(snapshot.meters.values())
    devices = transitions.index_devices(snapshot)
    claims = extended_resources.index_claims(snapshot)
    charged: set[Uid] = set()
    for group in groups:
        bound_pods = [(pod, _allocated(pod, snapshot, claims)) for pod in placed(group)]
        uncharged = {
            claim.meta.uid: claim for _, claims in bound_pods for claim in claims if claim.meta.uid not in charged
        }
        charged |= uncharged.keys()
        held = {uid: _holding(claim, devices, meters) for uid, claim in uncharged.items()}
        held |= {holding.claim_uid: holding for holding in _resources_of_nodes(bound_pods, meters)}
        reservation = _reservation(group, bound_pods, held, at=at, actor=actor)
        yield reservation
        yield from _settlement(reservation, held, at=at, actor=actor)


def placed(group: Group) -> tuple[Pod, ...]:
    """Return the pods of a gang that are bound."""
    return tuple(pod for pod in group.pods if pod.node)


def _allocated(pod: Pod, snapshot: Snapshot, claims: Mapping[Uid, Claim]) -> list[Claim]:
    """Return the pod's allocated claims: those that it names, and the one made for its extended resources."""
    keys = (f"{pod.meta.namespace}/{pod.claim_name(claim)}" for claim in pod.claims)
    found = [snapshot.claims.get(key) for key in keys]
    uid = names.extended_claim(pod.meta.uid)
    if uid in claims:
        found.append(replace(claims[uid], meta=replace(claims[uid].meta, uid=uid)))
    return [claim for claim in found if claim is not None and claim.allocation is not None]


def _holding(claim: Claim, devices: Mapping[DeviceId, Device], meters: Meters) -> Holding:
    results = claim.allocation.devices if claim.allocation else ()
    return Holding(
        claim_uid=claim.meta.uid,
        claim=claim.meta.key,
        devices=tuple(result.given for result in results),
        charge=_charge(claim, devices, meters),
        classes=holdings.classes(meters, claim.spec, ((result.given, result.admin_access) for result in results)),
    )


def _resources_of_nodes(bound_pods: BoundPods, meters: Meters) -> Iterator[Holding]:
    """Yield what the pods take of their nodes, without the extended resources that a claim was made for."""
    for pod, claims in bound_pods:
        specs = (claim.spec for claim in claims if claim.meta.uid == names.extended_claim(pod.meta.uid))
        by_devices = [name for spec in specs for name in extended_resources.by_resource(spec, pod.containers)]
        held = holdings.of_pod(meters, pod.meta.uid, pod.meta.key, holdings.of_node(pod.taken, by_devices))
        if held is not None:
            yield held


def _charge(claim: Claim, devices: Mapping[DeviceId, Device], meters: Meters) -> Charge:
    """Return the charge by today's meters for the devices that are still in a slice."""
    results = claim.allocation.devices if claim.allocation else ()
    present = [result for result in results if result.device in devices]
    priced = [
        PricedDevice(result.given, devices[result.device], result.admin_access, result.consumed or None)
        for result in present
    ]
    charge = device_meters.charge(meters, claim.spec, priced)
    if isinstance(charge, ChargeError):
        raise FixError(f"claim {claim.meta.key} is allocated but cannot be charged: {charge.message}")
    return charge


def _reservation(
    group: Group, bound_pods: BoundPods, held: Mapping[Uid, Holding], *, at: datetime, actor: str
) -> Entry:
    return books.reserve(
        gang_uid=group.uid,
        gang=group.key,
        queue=group.queue,
        seats=[
            Seat(
                pod_uid=pod.meta.uid, pod=pod.meta.key, node=pod.node, claims=tuple(claim.meta.uid for claim in claims)
            )
            for pod, claims in bound_pods
        ],
        holdings=held.values(),
        at=at,
        actor=actor,
        reason="its pods run already",
        on_behalf_of=group.key,
        user=next((pod.user for pod, _ in bound_pods if pod.user), ""),
    )


def _settlement(reservation: Entry, held: Mapping[Uid, Holding], *, at: datetime, actor: str) -> Iterator[Entry]:
    placement = books.Book().apply(reservation).placements[reservation.gang_uid]
    allocated = {
        uid: books.Allocated(holding.devices, holding.charge, holding.classes) for uid, holding in held.items()
    }
    entry = books.settle(placement, allocated, at=at, actor=actor)
    if entry is not None:
        yield entry
