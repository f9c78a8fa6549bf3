"""Claims, claim templates, and the allocations of claims (resource.k8s.io/v1)."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from admission.api.kubernetes import devices, meta
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.kubernetes.meta import Meta
from admission.api.values import quantities, selectors
from admission.api.values.decoding import Json, Reader
from admission.api.values.selectors import NodeSelector, Toleration
from admission.errors import AmountError

VERSION = "resource.k8s.io/v1"

ALL = "All"
EXACT_COUNT = "ExactCount"

MAX_RESULTS = 32
"""Devices that one claim can hold: AllocationResultsMaxSize of resource.k8s.io/v1."""

MAX_CONSUMERS = 256
"""Pods, or groups of pods, for which a claim can be reserved: ResourceClaimReservedForMaxSize."""

MOST_SPECS = 4_096
"""The most specs that claims share."""

LONGEST_SHARED = 4_096
"""The longest of them, in characters: they are kept when their claims are gone, and may be 1.5 MB long."""

FINALIZER = "resource.kubernetes.io/delete-protection"
"""Keeps a claim from being deleted while it is allocated: Finalizer of resource.k8s.io/v1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """The demand of one request, or of one alternative of a `firstAvailable` request.

    admin_access: None if not set. capacity: the requested amount of each capacity of a device, by its name in the
    slice; None without any. inexact: whether one of these amounts is written in a form that Kubernetes 1.36 adds up
    wrongly (`1.5Gi`). derived: whether it names derived attributes (1.37, alpha).
    """

    name: str
    device_class: str
    selectors: tuple[str, ...] = ()
    mode: str = EXACT_COUNT
    count: int = 1
    admin_access: bool | None = None
    tolerations: tuple[Toleration, ...] = ()
    capacity: Mapping[str, Fraction] | None = None
    inexact: bool = False
    derived: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One entry of spec.devices.requests: exactly one alternative, or the several of `firstAvailable` in order."""

    name: str
    alternatives: tuple[DeviceRequest, ...]
    first_available: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """matchAttribute or distinctAttribute over requests (all requests when empty)."""

    requests: tuple[str, ...] = ()
    match: str | None = None
    distinct: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSpec:
    """spec.devices of a claim. `config` is kept as JSON, for allocations that Muster writes."""

    requests: tuple[Request, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    config: tuple[Json, ...] = ()
    _equivalence_key: str = field(default="", init=False, repr=False, compare=False)

    @property
    def equivalence_key(self) -> str:
        """Return a cached text that is equal for specs with equal requests and constraints, whatever their `config`."""
        if not self._equivalence_key:
            object.__setattr__(self, "_equivalence_key", repr((self.requests, self.constraints)))
        return self._equivalence_key


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedDevice:
    """One of status.allocation.devices.results."""

    given: RequestDevice
    admin_access: bool = False
    share_id: str = ""
    consumed: Mapping[str, Fraction] = field(default_factory=dict)

    @property
    def device(self) -> DeviceId:
        return self.given.device


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """status.allocation; without a node selector the claim can be used on any node."""

    devices: tuple[AllocatedDevice, ...] = ()
    node_selector: NodeSelector | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A ResourceClaim. reserved_for: UIDs of the consumers."""

    meta: Meta
    spec: ClaimSpec
    allocation: Allocation | None = None
    reserved_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimTemplate:
    """A ResourceClaimTemplate. claim_metadata: labels and annotations of the claims made from it."""

    meta: Meta
    spec: ClaimSpec
    claim_metadata: Json = field(default_factory=dict)


def upgraded(obj: Json) -> Json:
    """Return a claim or a template in the shape of v1; in v1beta1 the fields of `exactly` are in the request itself."""
    if obj.get("apiVersion") != "resource.k8s.io/v1beta1":
        return obj
    spec = obj.get("spec")
    if not isinstance(spec, Mapping):
        return obj
    if obj.get("kind") != "ResourceClaimTemplate":
        return {**obj, "apiVersion": VERSION, "spec": _upgraded(spec)}
    inner = spec.get("spec")
    changed = {**spec, "spec": _upgraded(inner)} if isinstance(inner, Mapping) else spec
    return {**obj, "apiVersion": VERSION, "spec": changed}


def _upgraded(spec: Json) -> Json:
    devices = spec.get("devices")
    requests = devices.get("requests") if isinstance(devices, Mapping) else None
    if not isinstance(devices, Mapping) or not isinstance(requests, list):
        return spec
    return {**spec, "devices": {**devices, "requests": [_upgraded_request(request) for request in requests]}}


def _upgraded_request(request: Any) -> Any:
    if not isinstance(request, Mapping) or request.get("firstAvailable") or "exactly" in request:
        return request
    exactly = {name: value for name, value in request.items() if name not in ("name", "firstAvailable")}
    return {"name": request.get("name"), "exactly": exactly}


def decode(obj: Json) -> Claim:
    """Decode a ResourceClaim."""
    reader = Reader(obj)
    status = reader.child("status")
    result = Claim(
        meta=meta.decode(reader),
        spec=_shared_spec(reader.child("spec")),
        allocation=_allocation(status.child("allocation")) if "allocation" in status else None,
        reserved_for=tuple(consumer.text("uid") for consumer in status.children("reservedFor")),
    )
    reader.finish("ResourceClaim", result.meta.key)
    return result


def decode_allocation(obj: Json) -> Allocation:
    """Decode status.allocation of a ResourceClaim."""
    reader = Reader(obj)
    result = _allocation(reader)
    reader.finish("ResourceClaim", "status.allocation")
    return result


def decode_template(obj: Json) -> ClaimTemplate:
    """Decode a ResourceClaimTemplate."""
    reader = Reader(obj)
    spec = reader.child("spec")
    result = ClaimTemplate(
        meta=meta.decode(reader), spec=decode_spec(spec.child("spec")), claim_metadata=spec.object("metadata")
    )
    reader.finish("ResourceClaimTemplate", result.meta.key)
    return result


def decode_spec(reader: Reader) -> ClaimSpec:
    """Decode a ResourceClaimSpec."""
    spec = reader.child("devices")
    return ClaimSpec(
        requests=tuple(map(_request, spec.children("requests"))),
        constraints=tuple(
            Constraint(
                requests=constraint.texts("requests"),
                match=constraint.optional("matchAttribute"),
                distinct=constraint.optional("distinctAttribute"),
            )
            for constraint in spec.children("constraints")
        ),
        config=_config(spec),
    )


def _shared_spec(reader: Reader) -> ClaimSpec:
    """Decode a ResourceClaimSpec: one object for all claims that say the same, as those of one template do.

    There may be tens of thousands of them, and what is found of a spec is then found once.
    """
    try:
        text = json.dumps(reader.value)
        found = _spec_of(text) if len(text) <= LONGEST_SHARED else None
    except (TypeError, ValueError, RecursionError):
        found = None  # a manifest may have values that JSON does not
    return found or decode_spec(reader)


@lru_cache(maxsize=MOST_SPECS)
def _spec_of(text: str) -> ClaimSpec | None:
    """Return the spec in a text; None if it has problems, for whoever knows where it stands."""
    reader = Reader(json.loads(text))
    found = decode_spec(reader)
    return None if reader.problems else found


def encode_spec(spec: ClaimSpec) -> Json:
    """Return a ResourceClaimSpec that asks for the same devices; without `config`, and without derived attributes.

    Raises AmountError for a capacity that cannot be written.
    """
    constraints = [
        {
            **({"requests": [*one.requests]} if one.requests else {}),
            **({"matchAttribute": one.match} if one.match is not None else {}),
            **({"distinctAttribute": one.distinct} if one.distinct is not None else {}),
        }
        for one in spec.constraints
    ]
    requests = [
        {"name": one.name, "firstAvailable": [{"name": sub.name, **_encoded(sub)} for sub in one.alternatives]}
        if one.first_available
        else {"name": one.name, "exactly": _encoded(one.alternatives[0])}
        for one in spec.requests
    ]
    return {"devices": {"requests": requests, **({"constraints": constraints} if constraints else {})}}


def _encoded(request: DeviceRequest) -> dict[str, Any]:
    """Return one alternative of a request without its name."""
    found: dict[str, Any] = {"deviceClassName": request.device_class, "allocationMode": request.mode}
    if request.mode == EXACT_COUNT:
        found["count"] = request.count
    if request.selectors:
        found["selectors"] = [{"cel": {"expression": text}} for text in request.selectors]
    if request.admin_access is not None:
        found["adminAccess"] = request.admin_access
    if request.tolerations:
        found["tolerations"] = [*map(selectors.encode_toleration, request.tolerations)]
    if request.capacity is not None:
        amounts = {name: quantities.write(amount) for name, amount in request.capacity.items()}
        found["capacity"] = {"requests": amounts}
    return found


def _config(spec: Reader) -> tuple[Json, ...]:
    """Return `config` unchanged; request names in it must be strings."""
    for entry in spec.children("config"):
        entry.texts("requests")
    return spec.objects("config")


def _request(reader: Reader) -> Request:
    name = reader.required("name")
    if reader.raw("firstAvailable") not in (None, []):
        found = (_device_request(sub, sub.required("name")) for sub in reader.children("firstAvailable"))
        # The API has no admin access in alternatives, and drops the field.
        alternatives = tuple(replace(alternative, admin_access=None) for alternative in found)
        return Request(name=name, alternatives=alternatives, first_available=True)
    if "exactly" not in reader:
        reader.problem("", "needs `exactly` or `firstAvailable`")
    return Request(name=name, alternatives=(_device_request(reader.child("exactly"), name),))


def _device_request(reader: Reader, name: str) -> DeviceRequest:
    mode = reader.text("allocationMode") or EXACT_COUNT
    return DeviceRequest(
        name=name,
        device_class=reader.text("deviceClassName"),
        selectors=devices.cel_selectors(reader),
        mode=mode,
        count=reader.integer("count", 1) if mode == EXACT_COUNT else 0,
        admin_access=reader.flag("adminAccess") if "adminAccess" in reader else None,
        tolerations=tuple(map(selectors.decode_toleration, reader.children("tolerations"))),
        capacity=_quantities(reader.child("capacity"), "requests") if "capacity" in reader else None,
        inexact=any(map(_is_inexact, map(str, _raw_values(reader.child("capacity"), "requests")))),
        derived=bool(reader.raw("derivedAttributes")),
    )


def _allocation(reader: Reader) -> Allocation:
    results = tuple(map(_allocated, reader.child("devices").children("results")))
    selector = selectors.decode_nodes(reader.child("nodeSelector")) if "nodeSelector" in reader else None
    return Allocation(devices=results, node_selector=selector)


def _allocated(reader: Reader) -> AllocatedDevice:
    device = DeviceId(reader.required("driver"), reader.required("pool"), reader.required("device"))
    return AllocatedDevice(
        given=RequestDevice(request=reader.required("request"), device=device),
        admin_access=reader.flag("adminAccess"),
        share_id=reader.text("shareID"),
        consumed=_quantities(reader, "consumedCapacity"),
    )


def _is_inexact(text: str) -> bool:
    """Return whether 1.36 adds an amount up wrongly: it modifies decimals in place, and wraps around above 2^63-1."""
    if quantities.is_decimal(text):
        return True
    try:
        return quantities.parse(text) > quantities.INT64
    except AmountError:
        return False


def _raw_values(reader: Reader, name: str) -> Iterable[Any]:
    values = reader.child(name)
    return (values.raw(key) for key in reader.keys(name))


def _quantities(reader: Reader, name: str) -> dict[str, Fraction]:
    values = reader.child(name)
    return {key: values.parsed(key, quantities.measure, Fraction(0)) for key in reader.keys(name)}
