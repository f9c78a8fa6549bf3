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
    """Units by node, in the order of drivers, PCIe roots and names; places: the node of each device."""

    nodes: Mapping[str, Sequence[Unit]]
    places: Mapping[DeviceId, str] = field(default_factory=dict)


def inventory(slices: Iterable[Slice]) -> Inventory:
    """Return the inventory of all slices; only the newest generation of each pool counts."""
    newest: dict[tuple[str, str], list[Slice]] = {}
    for one in slices:
        pool = newest.setdefault((one.driver, one.pool), [])
        if pool and pool[0].generation < one.generation:
            pool.clear()
        if not pool or pool[0].generation == one.generation:
            pool.append(one)
    nodes: dict[str, list[Unit]] = {}
    places: dict[DeviceId, str] = {}
    for (driver, pool_name), of in sorted(newest.items()):
        for node, unit in _units(driver, pool_name, of):
            nodes.setdefault(node, []).append(unit)
            places |= {part.id: node for part in unit.parts}
    for units in nodes.values():
        units.sort(key=lambda unit: (unit.driver, unit.pool, unit.root, natural(unit.name)))
    return Inventory(dict(sorted(nodes.items(), key=lambda item: natural(item[0]))), places)


def _units(driver: str, pool: str, slices: Sequence[Slice]) -> Iterable[tuple[str, Unit]]:
    totals = {name: counters for one in slices for name, counters in one.counters.items()}
    parts: dict[tuple[str, str], list[Part]] = {}
    for one in slices:
        for device in one.devices:
            node = device.node_name or one.node_name or SHARED
            name = device.consumes[0].counter_set if len(device.consumes) == 1 else ""
            unit = f"set:{name}" if name in totals else f"device:{device.name}"
            parts.setdefault((node, unit), []).append(
                Part(id=DeviceId(driver, pool, device.name), device=device, share=_share(device, totals))
            )
    for (node, key), of in parts.items():
        kind, _, name = key.partition(":")
        whole = max(of, key=lambda part: part.share)
        shown = whole.device.name if kind == "set" and whole.share == 1 else name
        roots = {text for part in of if (text := _root(part.device))}
        yield node, Unit(name=shown, driver=driver, pool=pool, root=min(roots, default=""), parts=tuple(of))


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
class Custody:
    """The holders of each device, and the inputs from which they were computed.

    plans: the granted devices, by claim and gang; given: the devices of each claim. Claims and gangs are keyed by
    `namespace/name`.
    """

    holders: Holders = field(default_factory=dict)
    claims: Mapping[str, Claim] = field(default_factory=dict)
    gangs: Mapping[str, ObservedGang] = field(default_factory=dict)
    plans: Mapping[str, Mapping[str, PlannedClaim]] = field(default_factory=dict)
    given: Mapping[str, Sequence[DeviceId]] = field(default_factory=dict)

    def after(self, claims: Mapping[str, Claim], gangs: Mapping[str, ObservedGang]) -> "Custody":
        """Return the present holders of each device: claims with an allocation, or with a grant not allocated yet.

        Only changed claims and gangs are processed.
        """
        plans, stirred = dict(self.plans), set(changed(self.claims, claims))
        for gang in changed(self.gangs, gangs):
            for claim in _planned(self.gangs.get(gang)):
                left = {other: plan for other, plan in plans.pop(claim, {}).items() if other != gang}
                if left:
                    plans[claim] = left
                stirred.add(claim)
            for claim, plan in _planned(gangs.get(gang)).items():
                plans[claim] = {**plans.get(claim, {}), gang: plan}
                stirred.add(claim)
        found, given = dict(self.holders), dict(self.given)
        for claim in stirred:
            for device in given.pop(claim, ()):
                others = [holder for holder in found.pop(device, ()) if holder.claim != claim]
                if others:
                    found[device] = others
            held = _held(claim, claims.get(claim), plans.get(claim, {}))
            for device, holder in held:
                found[device] = sorted((*found.get(device, ()), holder), key=lambda one: (one.planned, one.claim))
            if held:
                given[claim] = [device for device, _ in held]
        return Custody(holders=found, claims=claims, gangs=gangs, plans=plans, given=given)


def _planned(gang: ObservedGang | None) -> dict[str, PlannedClaim]:
    """Return the claims with granted devices of a gang."""
    return {claim.claim: claim for pod in gang.report.plan for claim in pod.claims} if gang is not None else {}


def _held(key: str, claim: Claim | None, plans: Mapping[str, PlannedClaim]) -> list[tuple[DeviceId, Holder]]:
    """Return a claim's allocated devices, or else its granted ones; for the first of the gangs that share it."""
    gang = min(plans, default="")
    if claim is not None and claim.allocation is not None:
        given = (one for one in claim.allocation.devices if not one.admin_access)
        return [(one.device, Holder(claim=key, gang=gang, shared=bool(one.share_id))) for one in given]
    if not gang:
        return []
    return [(one.device, Holder(claim=key, gang=gang, planned=True)) for one in plans[gang].devices]


def namespaces(units: Iterable[Unit], held: Holders) -> set[str]:
    """Return the namespaces of all holders of these units."""
    return {holder.namespace for unit in units for part in unit.parts for holder in held.get(part.id, ())}


def natural(text: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key by which `gpu-2` precedes `gpu-10`."""
    return tuple((int(digits), "") if digits else (-1, rest) for digits, rest in _RUNS.findall(text))


_RUNS = re.compile(r"([0-9]+)|([^0-9]+)")
