"""Devices and the slices and classes that describe them (resource.k8s.io/v1)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from admission.api import suggestions
from admission.api.kubernetes import meta
from admission.api.kubernetes.meta import Meta
from admission.api.values import quantities, selectors
from admission.api.values.decoding import Json, Reader
from admission.api.values.names import NodeName
from admission.api.values.selectors import NodeSelector, Taint

LONGEST_LOOKED_UP = 100
"""Characters of a class's name for which similar names are looked up."""


class DeviceId(NamedTuple):
    """The cluster-wide identity of a device."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class RequestDevice:
    """A device given to one request of a claim; `request` is `name` or `name/alternative`."""

    request: str
    device: DeviceId


class Version(str):
    """A semantic version attribute: its text, distinguished from a string by its type."""

    __slots__ = ()


AttributeValue = str | int | bool | Version | tuple[str | int | bool | Version, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterUse:
    """The consumption of a device from one counter set of its pool.

    grouped: whether it names compatibility groups (1.37, alpha); kube-scheduler ignores such a slice while their
    feature gate is off.
    """

    counter_set: str
    counters: Mapping[str, Fraction]
    grouped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidRange:
    """The amounts of a capacity that a request may consume: from least up to most, in steps that start at least."""

    least: Fraction | None = None
    most: Fraction | None = None
    step: Fraction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPolicy:
    """How a capacity is consumed (`requestPolicy`). default: the amount of a request that names none."""

    default: Fraction | None = None
    values: tuple[Fraction, ...] = ()
    range: ValidRange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """An amount that a device offers.

    text: as in the slice, since CEL distinguishes `1Pi` from the same number of bytes in digits. inexact: whether it or
    its policy is written in a form that Kubernetes 1.36 adds up wrongly (`1.5Gi`).
    """

    value: Fraction
    text: str
    policy: RequestPolicy | None = None
    inexact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResource:
    """What a device takes of one resource of its node when it is allocated (DRANodeAllocatableResources).

    In units of the resource, so that `cpu` is in cores. per_device: once for the claim. capacity: a capacity of which
    every unit that the claim consumes takes per_unit. per_pod, per_container: for every pod that uses the claim, and
    every time that a container of it names the claim. mapped: whether the device is the resource itself, so that pods
    may not share the claim.
    """

    name: str
    per_device: Fraction = Fraction(0)
    capacity: str = ""
    per_unit: Fraction = Fraction(1)
    per_pod: Fraction = Fraction(0)
    per_container: Fraction = Fraction(0)
    mapped: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device of a slice.

    attributes and capacity: by their names in the slice (`model`, or `domain/model`). An attribute whose value is
    missing or of an unknown type has the value None: every selector fails on such a device.
    """

    name: str
    attributes: Mapping[str, AttributeValue | None] = field(default_factory=dict)
    capacity: Mapping[str, Capacity] = field(default_factory=dict)
    consumes: tuple[CounterUse, ...] = ()
    taints: tuple[Taint, ...] = ()
    node_name: NodeName = NodeName("")
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failures: tuple[str, ...] = ()
    binds_to_node: bool = False
    allows_multiple: bool = False
    node_resources: tuple[NodeResource, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A ResourceSlice.

    per_device_nodes: None if not set, which differs from False. inexact: whether an amount of its counters, or of its
    devices' consumption, is written in a form that Kubernetes 1.36 adds up wrongly.
    """

    meta: Meta
    driver: str
    pool: str
    generation: int
    slice_count: int
    node_name: NodeName = NodeName("")
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_nodes: bool | None = None
    devices: tuple[Device, ...] = ()
    counters: Mapping[str, Mapping[str, Fraction]] = field(default_factory=dict)
    """The pool's counter sets: set → counter → total."""
    inexact: bool = False
    takes_of_nodes: bool = field(init=False, repr=False, compare=False)
    """Whether a device takes resources of its node beside what pods request. Each state of the cluster asks for it."""

    def __post_init__(self) -> None:
        """Ask the devices once."""
        object.__setattr__(self, "takes_of_nodes", any(device.node_resources for device in self.devices))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClass:
    """A DeviceClass. selectors: CEL texts in order; config: JSON, for allocations that Muster writes."""

    meta: Meta
    selectors: tuple[str, ...] = ()
    extended_resource: str | None = None
    config: tuple[Json, ...] = ()


def decode_slice(obj: Json) -> Slice:
    """Decode a ResourceSlice."""
    reader = Reader(obj)
    result = decode_slice_spec(meta.decode(reader), reader.child("spec"))
    reader.finish("ResourceSlice", result.meta.key)
    return result


def decode_slice_spec(metadata: Meta, spec: Reader) -> Slice:
    """Decode the spec of a ResourceSlice, wherever it is written; what is wrong is noted in the reader."""
    pool = spec.child("pool")
    return Slice(
        meta=metadata,
        driver=spec.required("driver"),
        pool=pool.required("name"),
        generation=pool.integer("generation"),
        slice_count=pool.integer("resourceSliceCount", 1),
        node_name=NodeName(spec.text("nodeName")),
        node_selector=selectors.decode_nodes(spec.child("nodeSelector")) if "nodeSelector" in spec else None,
        all_nodes=spec.flag("allNodes"),
        per_device_nodes=spec.flag("perDeviceNodeSelection") if "perDeviceNodeSelection" in spec else None,
        devices=tuple(map(_device, spec.children("devices"))),
        counters={s.required("name"): _counters(s) for s in spec.children("sharedCounters")},
        inexact=any(map(_has_inexact, spec.children("sharedCounters")))
        or any(_has_inexact(use) for device in spec.children("devices") for use in device.children("consumesCounters")),
    )


def decode_class(obj: Json) -> DeviceClass:
    """Decode a DeviceClass."""
    reader = Reader(obj)
    spec = reader.child("spec")
    result = DeviceClass(
        meta=meta.decode(reader),
        selectors=cel_selectors(spec),
        extended_resource=spec.optional("extendedResourceName"),
        config=spec.objects("config"),
    )
    reader.finish("DeviceClass", result.meta.key)
    return result


def absent_class(name: str, classes: Iterable[str], *, uncounted: bool = False) -> str:
    """Return that a class does not exist, with the nearest that do, to follow its name.

    classes: those that exist. uncounted: no Meter counts it either.
    """
    absent = "which does not exist" + (" and which no Meter counts" if uncounted else "")
    known = list(classes)
    nearest = suggestions.nearest(name, known)[:2] if len(name) <= LONGEST_LOOKED_UP else []
    if nearest:
        return f"{absent}; did you mean {' or '.join(nearest)}?"
    there = f" (there are: {suggestions.listed(name, known)})" if known else ""
    return f"{absent}; create it, or name another one{there}"


def cel_selectors(reader: Reader) -> tuple[str, ...]:
    """Decode the CEL texts of `selectors`, in order."""
    return tuple(selector.child("cel").required("expression") for selector in reader.children("selectors"))


def _device(reader: Reader) -> Device:
    return Device(
        name=reader.required("name"),
        attributes={name: _attribute(value) for name, value in reader.entries("attributes")},
        capacity={name: _capacity(value) for name, value in reader.entries("capacity")},
        consumes=tuple(
            CounterUse(
                counter_set=use.required("counterSet"),
                counters=_counters(use),
                grouped=bool(use.texts("compatibilityGroups")),
            )
            for use in reader.children("consumesCounters")
        ),
        taints=tuple(map(selectors.decode_taint, reader.children("taints"))),
        node_name=NodeName(reader.text("nodeName")),
        node_selector=selectors.decode_nodes(reader.child("nodeSelector")) if "nodeSelector" in reader else None,
        all_nodes=reader.flag("allNodes"),
        binding_conditions=reader.texts("bindingConditions"),
        binding_failures=reader.texts("bindingFailureConditions"),
        binds_to_node=reader.flag("bindsToNode"),
        allows_multiple=reader.flag("allowMultipleAllocations"),
        node_resources=tuple(_node_resources(reader)),
    )


def _node_resources(reader: Reader) -> Iterable[NodeResource]:
    """Decode what a device takes of its node, as 1.37 writes it and as 1.36 does; each is unknown to the other."""
    for name, one in reader.entries("nodeAllocatableResources"):
        mapping, overhead = one.child("mapping"), one.child("overhead")
        yield NodeResource(
            name=name,
            per_device=_amount(mapping, "deviceMultiplier") or Fraction(0),
            capacity=mapping.text("capacityKey"),
            per_unit=_amount(mapping, "capacityMultiplier") or Fraction(1),
            per_pod=_amount(overhead, "perPod") or Fraction(0),
            per_container=_amount(overhead, "perContainer") or Fraction(0),
            mapped="mapping" in one,
        )
    for name, one in reader.entries("nodeAllocatableResourceMappings"):
        key, times = one.text("capacityKey"), _amount(one, "allocationMultiplier")
        yield NodeResource(
            name=name,
            per_device=Fraction(0) if key else times or Fraction(0),
            capacity=key,
            per_unit=Fraction(1) if times is None else times,
        )


def _attribute(reader: Reader) -> AttributeValue | None:
    if "version" in reader:
        return Version(reader.text("version"))
    if "versions" in reader:
        return tuple(map(Version, reader.texts("versions")))
    for name in ("string", "int", "bool"):
        value = reader.raw(name)
        if isinstance(value, str | int | bool):
            return value
    for name in ("strings", "ints", "bools"):
        values = reader.raw(name)
        if isinstance(values, list):
            return tuple(values)
    return None


def _capacity(reader: Reader) -> Capacity:
    if "value" not in reader:
        reader.problem("value", "is required")
    return Capacity(
        value=reader.parsed("value", quantities.measure, Fraction(0)),
        text=str(reader.raw("value")),
        policy=_policy(reader.child("requestPolicy")) if "requestPolicy" in reader else None,
        inexact=any(map(quantities.is_decimal, _texts(reader))),
    )


def _texts(reader: Reader) -> Iterable[str]:
    """Yield the texts of all amounts of a capacity."""
    policy = reader.child("requestPolicy")
    span = policy.child("validRange")
    values = policy.raw("validValues")
    found = [reader.raw("value"), policy.raw("default"), *(values if isinstance(values, list) else ())]
    return (str(raw) for raw in (*found, *map(span.raw, ("min", "max", "step"))) if raw is not None)


def _has_inexact(reader: Reader) -> bool:
    return any(quantities.is_decimal(str(counter.raw("value"))) for _, counter in reader.entries("counters"))


def _policy(reader: Reader) -> RequestPolicy:
    span = reader.child("validRange")
    return RequestPolicy(
        default=_amount(reader, "default"),
        values=reader.all_parsed("validValues", quantities.measure),
        range=ValidRange(least=_amount(span, "min"), most=_amount(span, "max"), step=_amount(span, "step"))
        if "validRange" in reader
        else None,
    )


def _amount(reader: Reader, name: str) -> Fraction | None:
    return reader.parsed(name, quantities.measure, Fraction(0)) if name in reader else None


def _counters(reader: Reader) -> dict[str, Fraction]:
    return {name: _counter(counter) for name, counter in reader.entries("counters")}


def _counter(reader: Reader) -> Fraction:
    if "value" not in reader:
        reader.problem("value", "is required")
    return reader.parsed("value", quantities.measure, Fraction(0))
