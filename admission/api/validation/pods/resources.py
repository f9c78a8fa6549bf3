"""Validation of the resources of containers, pods and nodes, and of the claims that containers use.

In the API server's words. Mirrors `pkg/apis/core/validation` of Kubernetes (v1.36.3, v1.37.1), after the defaults of
`pkg/apis/core/v1`.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from admission.api.kubernetes import nodes, pod_requests
from admission.api.validation import fields
from admission.api.values import formats, quantities
from admission.api.values.decoding import Reader
from admission.errors import AmountError

HUGE_PAGES = "hugepages-"
COMPUTE = ("cpu", "memory")
STANDARD = frozenset({*COMPUTE, "ephemeral-storage"})
"""Resources of containers that have no domain, beside huge pages."""
COUNTED = frozenset(
    {
        "pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps",
        "persistentvolumeclaims", "services.nodeports", "services.loadbalancers",
    }
)  # fmt: skip
"""Resources without a domain of which there are no parts."""

Amounts = Mapping[str, Fraction]


def validate(container: Reader, claims: tuple[str, ...]) -> None:
    """Judge the resources of a container. claims: the names of its pod's claims."""
    resources = container.child("resources")
    _requirements(resources, is_pod=False)
    _used_claims(resources, claims)


def validate_overhead(spec: Reader) -> None:
    """Judge what a pod needs beside its containers, which counts as limits do."""
    amounts = _amounts(spec, "overhead", is_pod=False)
    _huge_pages(spec, "overhead", {*amounts})


def validate_node_amounts(status: Reader, field: str) -> None:
    """Judge what a node has of each resource."""
    values = status.child(field)
    for name in status.keys(field):
        amount = fields.amount(values, name)
        for message in () if amount is None else _wrong_amount(name, _stored(amount)):
            fields.invalid(values, name, message)


def validate_pod(spec: Reader) -> None:
    """Judge the resources of a pod as a whole."""
    resources = spec.child("resources")
    if resources.raw("claims") is not None:
        resources.problem("claims", "Forbidden: claims may not be set for Resources at pod-level")
    _requirements(resources, is_pod=True)
    alone = Reader({name: value for name, value in spec.value.items() if name not in ("resources", "overhead")})
    needed = pod_requests.decode_spec(alone)
    whole = nodes.decode_resources(Reader(resources.value), "requests")
    _defaulted_requests(resources, needed, whole)
    for name in sorted(whole.keys() & needed.keys()):
        if needed[name] > whole[name]:
            resources.child("requests").problem(
                name,
                f"Invalid value: {resources.child('requests').raw(name)}: must be greater than or equal to aggregate"
                f" container requests of {quantities.write(Fraction(needed[name], 1000 if name == 'cpu' else 1))}",
            )
    for index, container in enumerate(spec.children("containers")):
        limits, most = container.child("resources").child("limits"), resources.child("limits")
        for name in container.child("resources").keys("limits"):
            limit, of_pod = (one.parsed(name, quantities.parse, None) for one in (limits, most))
            if limit is not None and of_pod is not None and limit > of_pod:
                message = f"Invalid value: {limits.raw(name)}: must be less than or equal to pod limits of"
                spec.problem(f"containers[{index}].resources.limits.{name}", f"{message} {most.raw(name)}")


def _defaulted_requests(resources: Reader, needed: nodes.Resources, whole: nodes.Resources) -> None:
    """Judge the limits of a pod as a whole by the requests of its containers, which become those that it lacks.

    needed: what the containers request together. whole: what the pod requests as a whole.
    """
    limits = nodes.decode_resources(Reader(resources.value), "limits")
    for name in COMPUTE:
        if name in limits and name not in whole and needed.get(name, 0) > limits[name]:
            asked = quantities.write(Fraction(needed[name], 1000 if name == "cpu" else 1))
            message = f"must be less than or equal to {name} limit of {_raw(resources, name)}"
            resources.problem(
                "requests", f"Invalid value: {asked!r}: {message}; its containers request so much together"
            )


def _used_claims(resources: Reader, names: tuple[str, ...]) -> None:
    """Judge the claims that a container uses. names: of the pod's claims."""
    seen: set[str] = set()
    for index, claim in enumerate(resources.children("claims")):
        field, name, request = f"claims[{index}]", claim.text("name"), claim.text("request")
        if not name:
            resources.problem(field, "Required value: the name of one of the pod's resourceClaims")
            continue
        if request:
            fields.text(claim, "request", formats.label)
        key = f"{name}/{request}" if request else name
        is_part = not request and any(other.startswith(f"{name}/") for other in seen)
        if name in seen or key in seen or is_part:
            resources.problem(field, f"Duplicate value: {key!r}")
        if name not in seen:
            seen.add(key)
        if name not in names:
            which = f": {', '.join(names)}" if names else " which is empty"
            resources.problem(field, f"Not found: {name!r}: must be one of the names in pod.spec.resourceClaims{which}")


def _requirements(resources: Reader, *, is_pod: bool) -> None:
    """Judge the limits and requests of a container, or of a pod as a whole."""
    limits = _amounts(resources, "limits", is_pod=is_pod)
    requests = _amounts(resources, "requests", is_pod=is_pod)
    for name, amount in requests.items():
        limit, is_exact = limits.get(name), not _may_overcommit(name)
        at = f"Invalid value: {resources.child('requests').raw(name)}:"
        if limit is None and is_exact:
            resources.problem(
                "limits", f"Required value: Limit must be set for non overcommitable resources, such as {name}"
            )
        elif limit is not None and is_exact and amount != limit:
            resources.problem("requests", f"{at} must be equal to {name} limit of {_raw(resources, name)}")
        elif limit is not None and amount > limit:
            resources.problem("requests", f"{at} must be less than or equal to {name} limit of {_raw(resources, name)}")
    _huge_pages(resources, "", {*limits, *requests})


def _huge_pages(reader: Reader, field: str, names: set[str]) -> None:
    if any(name.startswith(HUGE_PAGES) for name in names) and not names.intersection(COMPUTE):
        reader.problem(field, "Forbidden: HugePages require cpu or memory")


def _raw(resources: Reader, name: str) -> Any:
    return resources.child("limits").raw(name)


def _amounts(reader: Reader, field: str, *, is_pod: bool) -> Amounts:
    """Judge a ResourceList; return its amounts as the API server stores them."""
    values = reader.child(field)
    found: dict[str, Fraction] = {}
    for name in reader.keys(field):
        for message in _wrong_name(name, is_pod=is_pod):
            values.problem(name, f"Invalid value: {name!r}: {message}")
        amount = values.parsed(name, quantities.parse, None)
        if amount is None:
            continue
        found[name] = _stored(amount)
        for message in (*_wrong_amount(name, found[name]), *_wrong_pages(name, found[name])):
            values.problem(name, f"Invalid value: {values.raw(name)}: {message}")
    return found


def _stored(amount: Fraction) -> Fraction:
    """Return an amount rounded up to thousandths."""
    return Fraction(-((-amount * 1000) // 1), 1000)


def _wrong_name(name: str, *, is_pod: bool) -> Iterator[str]:
    is_huge = name.startswith(HUGE_PAGES)
    if wrong := formats.key(name):
        yield wrong
    elif is_pod and not is_huge and name not in COMPUTE:
        yield f"a pod as a whole asks for {', '.join((*COMPUTE, HUGE_PAGES))} alone"
    elif "/" not in name and not is_huge and name not in STANDARD:
        yield "must be a standard resource for containers, or have a domain such as example.com/gpu"
    elif not _is_native(name) and formats.extended_resource(name) is not None:
        yield "doesn't follow extended resource name standard"


def _wrong_amount(name: str, amount: Fraction) -> Iterator[str]:
    if amount < 0:
        yield "must be greater than or equal to 0"
    if (name in COUNTED or formats.extended_resource(name) is None) and amount.denominator != 1:
        yield "must be an integer"


def _wrong_pages(name: str, amount: Fraction) -> Iterator[str]:
    if name.startswith(HUGE_PAGES) and not _is_divisible(name, amount):
        yield f"is not positive integer multiple of {name}"


def _is_divisible(name: str, amount: Fraction) -> bool:
    try:
        size = quantities.parse(name.removeprefix(HUGE_PAGES))
    except AmountError:
        return False
    return size > 0 and size.denominator == 1 and -(-amount // 1) % size == 0


def _is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def _may_overcommit(name: str) -> bool:
    return _is_native(name) and not name.startswith(HUGE_PAGES)
