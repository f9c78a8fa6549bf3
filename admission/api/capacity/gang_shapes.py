"""Shapes of gangs: what pods of a gang ask for, without names, so that gangs that ask for the same have the same shape.

Requests of claims have numbers in place of names (`r0`, and `s0` for an alternative), also where constraints name them.
What pods ask of nodes beside resources and devices, such as selectors, affinity and tolerations, is no part of it. The
text of a shape is JSON, in one form for each shape; the books have it of gangs that waited.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from admission.api.kubernetes import claims
from admission.api.kubernetes.claims import ALL, ClaimSpec, Request
from admission.api.kubernetes.nodes import Resources
from admission.api.values import quantities
from admission.api.values.decoding import Json, Reader
from admission.errors import AmountError

LONGEST = 2_048
"""Characters of a text; a gang that needs more has no shape."""

_CPU = "cpu"
_PODS = "pods"
"""What each pod takes of its node by being there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodShape:
    """Pods of a gang that ask for the same. requests: of nodes, as quantities. claims: those that each has alone."""

    count: int
    requests: tuple[tuple[str, str], ...] = ()
    claims: tuple[ClaimSpec, ...] = ()

    @property
    def title(self) -> str:
        """Return it in short: `8x8:gpu.example.com cpu=4`, of claims no more than classes and numbers."""
        devices = ",".join(f"{count}:{device_class}" for device_class, count in self._devices())
        requests = ",".join(f"{name}={amount}" for name, amount in self.requests)
        return " ".join(filter(None, (f"{self.count}x{devices or 0}", requests)))

    def _devices(self) -> Iterator[tuple[str, str]]:
        for spec in self.claims:
            for request in spec.requests:
                classes = "|".join(dict.fromkeys(one.device_class for one in request.alternatives))
                first = request.alternatives[0]
                yield classes, "all" if first.mode == ALL else str(first.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class GangShape:
    """The pods of a gang, those first that are most."""

    pods: tuple[PodShape, ...]

    @property
    def size(self) -> int:
        """Return how many pods it has."""
        return sum(one.count for one in self.pods)

    @property
    def title(self) -> str:
        """Return it in short."""
        return " + ".join(one.title for one in self.pods)

    @property
    def text(self) -> str:
        """Return it as JSON, in one form for each shape. Raises AmountError for a capacity that cannot be written."""
        return json.dumps([_encoded(one) for one in self.pods], separators=(",", ":"), sort_keys=True)


def requested(resources: Resources) -> tuple[tuple[str, str], ...]:
    """Return what a pod requests of its node as quantities, by name."""
    return tuple(
        (name, quantities.write(Fraction(amount, 1000 if name == _CPU else 1)))
        for name, amount in sorted(resources.items())
        if amount and name != _PODS
    )


def of_pods(pods: Iterable[PodShape]) -> GangShape | None:
    """Return the shape of a gang; None if there is none, or its text would be too long."""
    merged: dict[tuple[object, ...], PodShape] = {}
    for pod in pods:
        one = replace(pod, claims=tuple(map(_numbered, pod.claims)))
        key = (one.requests, *(spec.equivalence_key for spec in one.claims))
        before = merged.get(key)
        merged[key] = one if before is None else replace(before, count=before.count + one.count)
    in_order = sorted(merged.items(), key=lambda pair: (-pair[1].count, pair[1].title, repr(pair[0])))
    shape = GangShape(pods=tuple(one for _, one in in_order))
    try:
        return shape if merged and len(shape.text) <= LONGEST else None
    except AmountError:
        return None


def parse(text: str) -> GangShape:
    """Return the shape of a text. Raises MalformedObjectError if it is that of none."""
    try:
        pods = json.loads(text)
    except ValueError:
        pods = None
    reader = Reader({"pods": pods})
    found = GangShape(pods=tuple(map(_pod, reader.children("pods"))))
    if not found.pods:
        reader.problem("pods", "are missing")
    reader.finish("GangShape", text[:60])
    return found


def _numbered(spec: ClaimSpec) -> ClaimSpec:
    """Return a claim with numbers in place of the names of its requests."""
    numbers: dict[str, str] = {}
    requests: list[Request] = []
    for at, request in enumerate(spec.requests):
        name = numbers[request.name] = f"r{at}"
        if not request.first_available:
            alternatives = tuple(replace(one, name=name) for one in request.alternatives)
        else:
            alternatives = tuple(replace(one, name=f"s{number}") for number, one in enumerate(request.alternatives))
            pairs = zip(request.alternatives, alternatives, strict=True)
            numbers |= {f"{request.name}/{one.name}": f"{name}/{new.name}" for one, new in pairs}
        requests.append(replace(request, name=name, alternatives=alternatives))
    constraints = tuple(
        replace(one, requests=tuple(sorted(numbers.get(name, name) for name in one.requests)))
        for one in spec.constraints
    )
    return ClaimSpec(requests=tuple(requests), constraints=constraints)


def _encoded(one: PodShape) -> Json:
    specs = [claims.encode_spec(spec) for spec in one.claims]
    return {"count": one.count, "requests": dict(one.requests), "claims": specs}


def _pod(reader: Reader) -> PodShape:
    return PodShape(
        count=reader.integer("count", 1),
        requests=tuple(sorted(reader.pairs("requests").items())),
        claims=tuple(map(claims.decode_spec, reader.children("claims"))),
    )
