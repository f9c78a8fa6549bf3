"""What claims ask for, ready to be searched: one `Ask` per request, in order, and the constraints.

The checks are those that the allocator makes before it looks at any device (`Allocate` of
`structured/internal/incubating/allocator_incubating.go`, v0.37.1). What Muster does not simulate yet is refused here by
name; a device that needs it is refused where the search meets it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from admission.api.claims import EXACT_COUNT, MAX_RESULTS, ClaimSpec, Constraint, DeviceRequest, Request
from admission.api.devices import DeviceClass
from admission.api.names import MeterName
from admission.api.selectors import Toleration
from admission.dra import selecting
from admission.dra.selecting import Texts


@dataclass(frozen=True, slots=True)
class NotSimulated:
    """A feature that Muster does not simulate, and where it was met. Nothing is said of whether it would fit."""

    what: str
    where: str

    def __str__(self) -> str:
        return f"{self.where} uses {self.what}, which Muster does not simulate"


@dataclass(frozen=True, slots=True)
class Fatal:
    """kube-scheduler would give up on the pod here, even if other nodes would do."""

    error: str

    def __str__(self) -> str:
        return self.error


@dataclass(frozen=True, slots=True)
class Unpriced:
    """A meter cannot say what a device costs that would do. Nothing is said of whether the gang would fit."""

    meter: MeterName
    error: str

    def __str__(self) -> str:
        return self.error


@dataclass(frozen=True, slots=True)
class Ask:
    """What makes a device do for a request. Two requests with equal asks may get each other's devices."""

    device_class: str
    texts: Texts
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestAsk:
    """One request: its name, as results write it, and how many devices of which sort."""

    name: str
    ask: Ask
    count: int


@dataclass(frozen=True, slots=True)
class Rule:
    """A constraint: the attribute, whether values must be equal or all different, and the requests that it binds."""

    attribute: str
    distinct: bool
    requests: frozenset[str]
    """Positions do not matter: names, as the constraint writes them; empty for all."""

    def binds(self, request: str) -> bool:
        return not self.requests or request in self.requests


@dataclass(frozen=True, slots=True)
class ClaimAsk:
    """All that one claim asks for. Claims with equal asks are interchangeable."""

    requests: tuple[RequestAsk, ...] = ()
    rules: tuple[Rule, ...] = ()


Refusal = NotSimulated | Fatal | Unpriced


def of(spec: ClaimSpec, classes: Mapping[str, DeviceClass], where: str) -> ClaimAsk | Refusal:
    """Return what a claim asks for. where: how messages call the claim."""
    requests: list[RequestAsk] = []
    for request in spec.requests:
        found = _request(request, classes, where)
        if not isinstance(found, RequestAsk):
            return found
        requests.append(found)
    total = sum(request.count for request in requests)
    if total > MAX_RESULTS:
        return Fatal(f"{where} asks for {total} devices, more than the {MAX_RESULTS} that a claim can hold")
    rules: list[Rule] = []
    for constraint in spec.constraints:
        rule = _rule(constraint, where)
        if not isinstance(rule, Rule):
            return rule
        rules.append(rule)
    return ClaimAsk(tuple(requests), tuple(rules))


def _request(request: Request, classes: Mapping[str, DeviceClass], where: str) -> RequestAsk | Refusal:
    place = f"request {request.name} of {where}"
    if request.first_available:
        return NotSimulated("firstAvailable", place)
    option = request.alternatives[0]
    if what := _not_simulated(option):
        return NotSimulated(what, place)
    if not option.device_class:
        return Fatal(f"{place} names no device class")
    device_class = classes.get(option.device_class)
    if device_class is None:
        return Fatal(f"{place} asks for device class {option.device_class}, which does not exist")
    texts = selecting.joined(device_class.selectors, option.selectors)
    return RequestAsk(request.name, Ask(option.device_class, texts, option.tolerations), option.count)


def _not_simulated(option: DeviceRequest) -> str | None:
    """Return the first feature of a request that is not simulated."""
    features = {
        f"allocationMode {option.mode}": option.mode != EXACT_COUNT,
        "adminAccess": option.admin_access,
        "capacity requests": bool(option.capacity),
    }
    return next((what for what, used in features.items() if used), None)


def _rule(constraint: Constraint, where: str) -> Rule | Refusal:
    attribute = constraint.match or constraint.distinct
    if attribute is None or (constraint.match and constraint.distinct):
        return Fatal(f"{where} has a constraint that is neither matchAttribute nor distinctAttribute")
    return Rule(attribute, constraint.match is None, frozenset(constraint.requests))


def attributes(claims: Iterable[ClaimAsk]) -> tuple[str, ...]:
    """Return the attributes that constraints of these claims compare, in order of names."""
    return tuple(sorted({rule.attribute for claim in claims for rule in claim.rules}))


def asks(claims: Iterable[ClaimAsk]) -> tuple[Ask, ...]:
    """Return the different asks of these claims, in order of first use."""
    return tuple(dict.fromkeys(request.ask for claim in claims for request in claim.requests))
