"""Meters: the rules that turn devices into amounts of a unit."""

from dataclasses import dataclass
from enum import StrEnum

from admission.api.kubernetes import meta
from admission.api.kubernetes.meta import Meta
from admission.api.values.decoding import Json, Reader
from admission.api.values.names import MeterName


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
class Meter:
    """A Meter object."""

    meta: Meta
    unit: str = ""
    sources: tuple[Source, ...] = ()
    extended_resources: tuple[str, ...] = ()
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
        extended_resources=_extended_resources(spec),
        admin_access=AdminAccess(admin),
    )
    reader.finish("Meter", result.meta.key)
    return result


def _extended_resources(spec: Reader) -> tuple[str, ...]:
    """Decode names of extended resources by the rule of Kubernetes (`pkg/apis/core/helper`, IsExtendedResourceName)."""
    resources = spec.texts("extendedResources")
    for index, name in enumerate(resources):
        if "/" not in name or "kubernetes.io/" in name:
            fix = "write a vendor's domain and a name, as in nvidia.com/gpu; devices of a class are counted by sources"
            spec.problem(f"extendedResources[{index}]", f"{name!r} is not the name of an extended resource; {fix}")
    return resources


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
