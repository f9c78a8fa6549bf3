"""An inventory of all devices by node, and their holders.

A physical device that can be partitioned (MIG) is published as many devices, of which only some can exist at a time:
they all consume counters of one counter set. So the devices of one counter set are one *unit* here, and a device
without counters is a unit by itself.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import Device, DeviceId, Slice
from admission.api.muster.gangs import PlannedClaim
from admission.api.muster.observed import ObservedGang
from admission.api.snapshot import changed

ROOT = "resource.kubernetes.io/pcieRoot"
"""The standard attribute for a device's PCIe root (KEP-4381; k8s.io/dynamic-resource-allocation)."""

SHARED = ""
"""The node of devices that several nodes can use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A device of a slice. share: the part of its unit that it takes, at most 1."""

    id: DeviceId
    device: Device
    share: Fraction = Fraction(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A physical device. root: its PCIe root; "" if unknown. parts: the devices that can be allocated from it."""

    name: str
    driver: str
    pool: str
    root: str
    parts: tuple[Part, ...]

    @property
    def partitioned(self) -> bool:
        return len(self.parts) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A claim that holds a device. planned: it was granted the device, which is not allocated yet."""

    claim: str
    gang: str = ""
    planned: bool = False
    shared: bool = False

    @property
    def namespace(self) -> str:
        return self.claim.partition("/")[0]


Holders = Mapping[DeviceId, Sequence[Holder]]


@dataclass(frozen=True, slots=True)
class Inventory:
    """Units by node, in the order of drivers, PCIe roots and names.

    places: the node of each device. partitioned: the unit of each device that is a part of one. tainted: the devices
    whose own taints keep pods off.
    """

    nodes: Mapping[str, Sequence[Unit]]
    places: Mapping[DeviceId, str] = field(default_factory=dict)
    partitioned: Mapping[DeviceId, Unit] = field(default_factory=dict)
    tainted: frozenset[DeviceId] = frozenset()


def inventory(slices: Iterable[Slice]) -> Inventory:
    """Return the inventory of all slices; only the newest generation of each pool counts."""
    newest: dict[tuple[str, str], list[Slice]] = {}
    for slice_ in slices:
        pool = newest.setdefault((slice_.driver, slice_.pool), [])
        if pool and pool[0].generation < slice_.generation:
            pool.clear()
        if not pool or pool[0].generation == slice_.generation:
            pool.append(slice_)
    nodes: dict[str, list[Unit]] = {}
    places: dict[DeviceId, str] = {}
    partitioned: dict[DeviceId, Unit] = {}
    tainted: set[DeviceId] = set()
    for (driver, pool_name), newest_slices in sorted(newest.items()):
        for node, unit in _units(driver, pool_name, newest_slices):
            nodes.setdefault(node, []).append(unit)
            places |= {part.id: node for part in unit.parts}
            partitioned |= {part.id: unit for part in unit.parts if unit.partitioned}
            tainted.update(part.id for part in unit.parts if any(taint.blocks for taint in part.device.taints))
    for units in nodes.values():
        units.sort(key=lambda unit: (unit.driver, unit.pool, unit.root, natural(unit.name)))
    in_order = dict(sorted(nodes.items(), key=lambda item: natural(item[0])))
    return Inventory(in_order, places, partitioned, frozenset(tainted))


def _units(driver: str, pool: str, slices: Sequence[Slice]) -> Iterable[tuple[str, Unit]]:
    totals = {name: counters for slice_ in slices for name, counters in slice_.counters.items()}
    parts: dict[tuple[str, str], list[Part]] = {}
    for slice_ in slices:
        for device in slice_.devices:
            node = device.node_name or slice_.node_name or SHARED
            name = device.consumes[0].counter_set if len(device.consumes) == 1 else ""
            unit = f"set:{name}" if name in totals else f"device:{device.name}"
            parts.setdefault((node, unit), []).append(
                Part(id=DeviceId(driver, pool, device.name), device=device, share=_share(device, totals))
            )
    for (node, key), unit_parts in parts.items():
        kind, _, name = key.partition(":")
        largest = max(unit_parts, key=lambda part: part.share)
        unit_name = largest.device.name if kind == "set" and largest.share == 1 else name
        roots = {text for part in unit_parts if (text := _root(part.device))}
        yield node, Unit(name=unit_name, driver=driver, pool=pool, root=min(roots, default=""), parts=tuple(unit_parts))


def _share(device: Device, totals: Mapping[str, Mapping[str, Fraction]]) -> Fraction:
    """Return the largest part of any counter that a device consumes."""
    shares = [
        amount / total
        for use in device.consumes
        for counter, amount in use.counters.items()
        if (total := totals.get(use.counter_set, {}).get(counter))
    ]
    return min(max(shares, default=Fraction(1)), Fraction(1))


def _root(device: Device) -> str:
    value = device.attributes.get(ROOT)
    return str(value) if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceHolders:
    """The holders of each device, and the inputs from which they were computed.

    It is immutable, since pages of several versions are built at once; so it is made from the one before instead of
    being a declaration over `admission.incremental`.

    plans: the granted devices, by claim and gang; devices_of: the devices of each claim. Claims and gangs are keyed by
    `namespace/name`.
    """

    holders: Holders = field(default_factory=dict)
    claims: Mapping[str, Claim] = field(default_factory=dict)
    gangs: Mapping[str, ObservedGang] = field(default_factory=dict)
    plans: Mapping[str, Mapping[str, PlannedClaim]] = field(default_factory=dict)
    devices_of: Mapping[str, Sequence[DeviceId]] = field(default_factory=dict)

    def updated(self, claims: Mapping[str, Claim], gangs: Mapping[str, ObservedGang]) -> "DeviceHolders":
        """Return the present holders of each device: claims with an allocation, or with a grant not allocated yet.

        Only changed claims and gangs are processed.
        """
        plans, changed_claims = dict(self.plans), set(changed(self.claims, claims))
        for gang in changed(self.gangs, gangs):
            for claim in _planned(self.gangs.get(gang)):
                others_plans = {other: plan for other, plan in plans.pop(claim, {}).items() if other != gang}
                if others_plans:
                    plans[claim] = others_plans
                changed_claims.add(claim)
            for claim, plan in _planned(gangs.get(gang)).items():
                plans[claim] = {**plans.get(claim, {}), gang: plan}
                changed_claims.add(claim)
        holders, devices_of = dict(self.holders), dict(self.devices_of)
        for claim in changed_claims:
            for device in devices_of.pop(claim, ()):
                others = [holder for holder in holders.pop(device, ()) if holder.claim != claim]
                if others:
                    holders[device] = others
            claim_holders = _claim_holders(claim, claims.get(claim), plans.get(claim, {}))
            for device, holder in claim_holders:
                holders[device] = sorted((*holders.get(device, ()), holder), key=lambda one: (one.planned, one.claim))
            if claim_holders:
                devices_of[claim] = [device for device, _ in claim_holders]
        return DeviceHolders(holders=holders, claims=claims, gangs=gangs, plans=plans, devices_of=devices_of)


def _planned(gang: ObservedGang | None) -> dict[str, PlannedClaim]:
    """Return the claims with granted devices of a gang."""
    return {claim.claim: claim for pod in gang.report.plan for claim in pod.claims} if gang is not None else {}


def _claim_holders(key: str, claim: Claim | None, plans: Mapping[str, PlannedClaim]) -> list[tuple[DeviceId, Holder]]:
    """Return a claim's allocated devices, or else its granted ones; for the first of the gangs that share it."""
    gang = min(plans, default="")
    if claim is not None and claim.allocation is not None:
        results = (result for result in claim.allocation.devices if not result.admin_access)
        return [(result.device, Holder(claim=key, gang=gang, shared=bool(result.share_id))) for result in results]
    if not gang:
        return []
    return [(result.device, Holder(claim=key, gang=gang, planned=True)) for result in plans[gang].devices]


def namespaces(units: Iterable[Unit], holders: Holders) -> set[str]:
    """Return the namespaces of all holders of these units."""
    return {holder.namespace for unit in units for part in unit.parts for holder in holders.get(part.id, ())}


def natural(text: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key by which `gpu-2` precedes `gpu-10`."""
    return tuple((int(digits), "") if digits else (-1, rest) for digits, rest in _RUNS.findall(text))


_RUNS = re.compile(r"([0-9]+)|([^0-9]+)")
