"""Meters: the rules that turn devices, and what pods request of nodes, into amounts of a unit."""

import re
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from admission.api.kubernetes import meta
from admission.api.kubernetes.meta import Meta
from admission.api.values import quantities
from admission.api.values.decoding import Json, Reader
from admission.api.values.names import MeterName

CPU = "cpu"

NATIVE = (CPU, "memory", "ephemeral-storage", "pods")
"""What every node has for pods to request, beside huge pages."""

HUGE_PAGES = "^hugepages-[1-9][0-9]*([kMGTPE]|[KMGTPE]i)?$"
"""The names of huge pages, which end in their size."""

MOST_PER = 10**15

MOST_FACTOR = 1_000_000
"""With it, what one pod is charged for all of its resources is within `quantities.MOST`."""


class Measure(StrEnum):
    """How a source turns devices into an amount."""

    CLAIMS = "claims"
    COUNT = "count"
    CAPACITY = "capacity"
    COUNTER = "counter"
    EXPRESSION = "expression"


class AdminAccess(StrEnum):
    """Whether devices with admin access are charged."""

    FREE = "Free"
    CHARGE = "Charge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One rule of a meter. name: of the measured capacity or counter; expression: the price in CEL."""

    classes: tuple[str, ...]
    measure: Measure
    selector: str | None = None
    name: str = ""
    counter_set: str | None = None
    expression: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRate:
    """What a meter charges for a resource that pods request of nodes: `factor` for every `per` of it.

    per: in the unit of `nodes.Resources`.
    """

    name: str
    per: int = 1
    factor: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """A Meter object. resources: each once, those of extendedResources with a rate of 1."""

    meta: Meta
    unit: str = ""
    sources: tuple[Source, ...] = ()
    resources: tuple[ResourceRate, ...] = ()
    admin_access: AdminAccess = AdminAccess.FREE

    @property
    def name(self) -> MeterName:
        return MeterName(self.meta.name)

    @property
    def classes(self) -> frozenset[str]:
        """Return every device class that the meter's sources name."""
        return frozenset(name for source in self.sources for name in source.classes)


def decode(obj: Json) -> Meter:
    """Decode a Meter."""
    reader = Reader(obj)
    spec = reader.child("spec")
    admin = spec.text("adminAccess", AdminAccess.FREE)
    if admin not in set(AdminAccess):
        spec.problem("adminAccess", f"{admin!r} is not one of {', '.join(AdminAccess)}")
        admin = AdminAccess.FREE
    result = Meter(
        meta=meta.decode(reader),
        unit=spec.text("unit"),
        sources=tuple(map(_source, spec.children("sources"))),
        resources=(*_extended_resources(spec), *_resources(spec)),
        admin_access=AdminAccess(admin),
    )
    reader.finish("Meter", result.meta.key)
    return result


def _extended_resources(spec: Reader) -> tuple[ResourceRate, ...]:
    """Decode names of extended resources, each of which is charged 1 per unit."""
    resources = spec.texts("extendedResources")
    for index, name in enumerate(resources):
        if not _is_extended(name):
            fix = "write a vendor's domain and a name, as in nvidia.com/gpu; count others in spec.resources"
            spec.problem(f"extendedResources[{index}]", f"{name!r} is not the name of an extended resource; {fix}")
    return tuple(ResourceRate(name=name) for name in dict.fromkeys(resources))


def _resources(spec: Reader) -> tuple[ResourceRate, ...]:
    known = set(spec.texts("extendedResources"))
    found: list[ResourceRate] = []
    for reader in spec.children("resources"):
        rate = _rate(reader)
        if rate.name in known:
            reader.problem("name", f"{rate.name} is counted by this meter already; name each resource once")
        known.add(rate.name)
        found.append(rate)
    return tuple(found)


def _rate(reader: Reader) -> ResourceRate:
    name = reader.required("name")
    if name and not (name in NATIVE or re.fullmatch(HUGE_PAGES, name) or _is_extended(name)):
        fix = f"write one of {', '.join(NATIVE)}, a size of huge pages as in hugepages-2Mi, or a vendor's resource"
        reader.problem("name", f"{name!r} is nothing that pods request of nodes; {fix}, as in nvidia.com/gpu")
    factor = reader.integer("factor", 1)
    if not 1 <= factor <= MOST_FACTOR:
        reader.problem("factor", f"{factor} is not a number from 1 to {MOST_FACTOR}")
    given = reader.parsed("per", quantities.parse, Fraction(1))
    per = given * 1000 if name == CPU else given
    if per.denominator != 1 or not 0 < given <= MOST_PER:
        unit = "thousandths of a core, as in 1m or 1" if name == CPU else "units of the resource, as in 1 or 4Gi"
        reader.problem("per", f"is not a whole number of {unit}, and at most 1P")
        per = Fraction(1)
    return ResourceRate(name=name, per=per.numerator, factor=factor)


def _is_extended(name: str) -> bool:
    """Return whether this is the name of an extended resource (`pkg/apis/core/helper`, IsExtendedResourceName)."""
    return "/" in name and "kubernetes.io/" not in name


def _source(reader: Reader) -> Source:
    measures = [measure for measure in Measure if measure in reader]
    if len(measures) != 1:
        reader.problem("", f"needs exactly one of {', '.join(Measure)}, has {', '.join(measures) or 'none'}")
    measure = measures[0] if measures else Measure.COUNT
    settings = reader.child(measure)
    needs_name = measure in (Measure.CAPACITY, Measure.COUNTER)
    return Source(
        classes=reader.texts("deviceClasses"),
        measure=measure,
        selector=reader.optional("selector"),
        name=settings.required("name") if needs_name else "",
        counter_set=settings.optional("counterSet") if measure is Measure.COUNTER else None,
        expression=settings.required("cel") if measure is Measure.EXPRESSION else "",
    )
