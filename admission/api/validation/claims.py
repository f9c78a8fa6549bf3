"""Validation of claims and classes: requests, their alternatives, constraints, configuration, and allocations."""

import json
from collections.abc import Mapping

from admission.api.kubernetes.claims import ALL, EXACT_COUNT, MAX_RESULTS
from admission.api.validation import fields, selectors
from admission.api.values import formats
from admission.api.values.decoding import Reader

MOST_REQUESTS = 32
MOST_ALTERNATIVES = 8
MOST_SELECTORS = 32
MOST_CONSTRAINTS = 32
MOST_CONFIGS = 32
MOST_CONSUMERS = 256
LONGEST_EXPRESSION = 10 * 1024
"""Bytes of CEL."""
LONGEST_PARAMETERS = 10 * 1024
"""Bytes of JSON."""

LARGEST_COUNT = 2**31 - 1
"""The largest count that is not reported: a larger one is a mistake, or means "as many as there are"."""

RequestNames = Mapping[str, frozenset[str]]
"""Name of a request → names of its alternatives; empty for a request without `firstAvailable`."""


def validate(spec: Reader) -> None:
    """Judge the spec of a claim, or the inner one of a template."""
    devices = spec.child("devices")
    requests = list(devices.children("requests"))
    fields.sized(devices, "requests", len(requests), MOST_REQUESTS)
    names = [request.text("name") for request in requests]
    fields.unique(devices, names, lambda index: f"requests[{index}].name")
    for request in requests:
        _request(request)

    known = _names(devices)
    constraints = list(devices.children("constraints"))
    fields.sized(devices, "constraints", len(constraints), MOST_CONSTRAINTS)
    for constraint in constraints:
        _constraint(constraint, known)
    for config in _configs(devices, MOST_CONFIGS):
        _references(config, known)


def validate_class(spec: Reader) -> None:
    """Judge the spec of a DeviceClass."""
    _selectors(spec)
    for _ in _configs(spec, MOST_CONFIGS):
        pass
    fields.optional(spec, "extendedResourceName", formats.extended_resource)


def validate_status(status: Reader, spec: Reader) -> None:
    """Judge the status of a claim: its allocation and its consumers."""
    devices = status.child("allocation").child("devices")
    known = _names(spec.child("devices"))
    results = list(devices.children("results"))
    fields.sized(devices, "results", len(results), MAX_RESULTS)
    for result in results:
        _result(result, known)
    if "nodeSelector" in status.child("allocation"):
        selectors.node_selector(status.child("allocation").child("nodeSelector"))
    consumers = list(status.children("reservedFor"))
    fields.sized(status, "reservedFor", len(consumers), MOST_CONSUMERS)
    fields.unique(status, [consumer.text("uid") for consumer in consumers], lambda index: f"reservedFor[{index}].uid")
    for consumer in consumers:
        for name in ("resource", "name", "uid"):
            consumer.required(name)


def _names(devices: Reader) -> RequestNames:
    return {
        request.text("name"): frozenset(sub.text("name") for sub in request.children("firstAvailable"))
        for request in devices.children("requests")
    }


def _request(request: Reader) -> None:
    fields.text(request, "name", formats.label)
    alternatives = list(request.children("firstAvailable"))
    if alternatives and "exactly" in request:
        request.problem("", "has both exactly and firstAvailable; exactly one of them is required")
    if not alternatives and "exactly" not in request:
        request.problem("", "needs `exactly` or `firstAvailable`")
    if "exactly" in request:
        _device_request(request.child("exactly"))
    fields.sized(request, "firstAvailable", len(alternatives), MOST_ALTERNATIVES)
    names = [alternative.text("name") for alternative in alternatives]
    fields.unique(request, names, lambda index: f"firstAvailable[{index}].name")
    for alternative in alternatives:
        fields.text(alternative, "name", formats.label)
        if "adminAccess" in alternative:
            alternative.problem("adminAccess", "is not possible in firstAvailable; use exactly")
        _device_request(alternative)


def _device_request(request: Reader) -> None:
    fields.text(request, "deviceClassName", formats.subdomain)
    _selectors(request)
    _count(request)
    request.flag("adminAccess")
    for toleration in request.children("tolerations"):
        selectors.toleration(toleration)
    capacity = request.child("capacity").child("requests")
    for name in request.child("capacity").keys("requests"):
        fields.quantity(capacity, name)


def _count(request: Reader) -> None:
    mode = fields.one_of(request, "allocationMode", (EXACT_COUNT, ALL))
    if mode == ALL and fields.integer(request, "count") != 0:
        request.problem("count", "must be left out, since allocationMode is All")
    if mode in ("", EXACT_COUNT) and fields.integer(request, "count", least=1, default=1) > LARGEST_COUNT:
        request.problem("count", f"is {request.raw('count')}; a claim holds at most {MAX_RESULTS} devices")


def _selectors(reader: Reader) -> None:
    selectors = list(reader.children("selectors"))
    fields.sized(reader, "selectors", len(selectors), MOST_SELECTORS)
    for selector in selectors:
        text = selector.child("cel").required("expression")
        length = len(text.encode(errors="surrogatepass"))
        if length > LONGEST_EXPRESSION:
            message = f"is {length} bytes long, at most {LONGEST_EXPRESSION} are allowed"
            selector.problem("cel.expression", message)


def _constraint(constraint: Reader, known: RequestNames) -> None:
    _references(constraint, known)
    names = ("matchAttribute", "distinctAttribute")
    given = [name for name in names if name in constraint]
    if len(given) != 1:
        found = f"has {' and '.join(given)}" if given else "names no attribute"
        constraint.problem("", f"{found}; exactly one of {' and '.join(names)} is required")
    for name in given:
        fields.text(constraint, name, formats.fully_qualified)


def _configs(reader: Reader, most: int) -> list[Reader]:
    """Judge `config`, except for the requests to which an entry refers; return the entries."""
    configs = list(reader.children("config"))
    fields.sized(reader, "config", len(configs), most)
    for config in configs:
        if "opaque" not in config:
            config.problem("opaque", "is required")
            continue
        opaque = config.child("opaque")
        fields.text(opaque, "driver", formats.driver)
        _parameters(opaque)
    return configs


def _parameters(opaque: Reader) -> None:
    if "parameters" not in opaque:
        opaque.problem("parameters", "is required")
        return
    found = opaque.object("parameters")
    length = len(json.dumps(found, separators=(",", ":"), ensure_ascii=False, default=str).encode(errors="replace"))
    if length > LONGEST_PARAMETERS:
        opaque.problem("parameters", f"is {length} bytes of JSON, at most {LONGEST_PARAMETERS} are allowed")


def _references(reader: Reader, known: RequestNames) -> None:
    """Judge the requests to which a constraint or a configuration refers."""
    names = reader.texts("requests")
    fields.sized(reader, "requests", len(names), MOST_REQUESTS)
    fields.unique(reader, names, lambda index: f"requests[{index}]")
    for index, name in enumerate(names):
        _reference(reader, f"requests[{index}]", name, known)


def _reference(reader: Reader, field: str, name: str, known: RequestNames) -> None:
    request, slash, alternative = name.partition("/")
    if request in known and (not slash or alternative in known[request]):
        return
    valid_names = [
        *known,
        *(
            f"{request_}/{alternative_}"
            for request_, alternatives in known.items()
            for alternative_ in sorted(alternatives)
        ),
    ]
    reader.problem(field, f"{name!r} is no request of the claim; it has {', '.join(valid_names) or 'none'}")


def _result(result: Reader, known: RequestNames) -> None:
    name = result.required("request")
    if name:
        _reference(result, "request", name, known)
    fields.text(result, "driver", formats.driver)
    fields.text(result, "pool", formats.pool)
    fields.text(result, "device", formats.label)
    fields.optional(result, "shareID", formats.uuid)
    consumed = result.child("consumedCapacity")
    for capacity in result.keys("consumedCapacity"):
        fields.quantity(consumed, capacity)
    for toleration in result.children("tolerations"):
        selectors.toleration(toleration)
