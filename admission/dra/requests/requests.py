"""The parsed requests of claims, ready to be searched: their alternatives in order, and the constraints.

The checks are those that the allocator makes before it reads any device (`Allocate` and `validateDeviceRequest` of
`structured/internal/incubating/allocator_incubating.go`, v0.37.1).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from admission.api.kubernetes.claims import ALL, EXACT_COUNT, MAX_RESULTS, ClaimSpec, Constraint, DeviceRequest, Request
from admission.api.kubernetes.devices import DeviceClass
from admission.api.values.names import MeterName
from admission.api.values.selectors import Toleration
from admission.dra.compatibility import SchedulerProfile
from admission.dra.inventory import selectors
from admission.dra.inventory.selectors import Texts
from admission.dra.requests.capacity import Needs
from admission.dra.requests.constraints import Rule


@dataclass(frozen=True, slots=True)
class Fatal:
    """An error at which kube-scheduler gives up on the pod, even if other nodes would take it.

    claim: its index among the claims searched, if the error is about one. request and device: likewise, by name.
    """

    error: str
    claim: int | None = None
    request: str = ""
    device: str = ""

    def __str__(self) -> str:
        return self.error


@dataclass(frozen=True, slots=True)
class Unpriced:
    """A meter cannot price a matching device, so the search stops; whether the gang would fit is not known."""

    meter: MeterName
    error: str

    def __str__(self) -> str:
        return self.error


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """All that decides whether a device matches a request. Equal ones match the same devices."""

    device_class: str
    texts: Texts
    tolerations: tuple[Toleration, ...] = ()
    needs: Needs = ()
    inexact: bool = False
    """Whether 1.36 adds up its needs wrongly."""


class Mode(StrEnum):
    """How many devices a request wants."""

    EXACT = EXACT_COUNT
    ALL = ALL


@dataclass(frozen=True, slots=True)
class Option:
    """One way to serve a request: the request itself, or one of its alternatives.

    name: as in results, `request` or `request/alternative`. count: how many devices; not used in mode All. admin:
    whether it has admin access, so that devices may be in use already. tolerations: as written, for the results.
    """

    name: str
    parsed: ParsedRequest
    count: int = 1
    mode: Mode = Mode.EXACT
    admin: bool = False
    tolerations: tuple[Toleration, ...] = ()

    @property
    def plain(self) -> bool:
        """Return whether it takes a fixed number of devices that are available."""
        return self.mode is Mode.EXACT and not self.admin


@dataclass(frozen=True, slots=True)
class RequestAlternatives:
    """One request and its options in order of preference. listed: whether it is written as a list of alternatives."""

    name: str
    options: tuple[Option, ...]
    listed: bool = False

    @property
    def least(self) -> int:
        """Return the least devices that it takes, as far as that is known without devices: 0 for mode All."""
        return min((option.count if option.mode is Mode.EXACT else 0 for option in self.options), default=0)


@dataclass(frozen=True, slots=True)
class ParsedClaim:
    """All that one claim requests. Equal ones are interchangeable."""

    requests: tuple[RequestAlternatives, ...] = ()
    rules: tuple[Rule, ...] = ()


RequestRefusal = Fatal | Unpriced
"""Why a request can get no device on any node, or none whose price is known, whatever is free."""


def parse(
    spec: ClaimSpec, classes: Mapping[str, DeviceClass], where: str, profile: SchedulerProfile
) -> ParsedClaim | Fatal:
    """Return a claim's requests and constraints, parsed. where: the name of the claim in messages."""
    requests: list[RequestAlternatives] = []
    for request in spec.requests:
        found = _request(request, classes, where, profile)
        if isinstance(found, Fatal):
            return found
        requests.append(found)
    least = sum(request.least for request in requests)
    if least > MAX_RESULTS:
        return Fatal(f"{where} asks for {least} devices, more than the {MAX_RESULTS} that a claim can hold")
    rules: list[Rule] = []
    for constraint in spec.constraints:
        rule = _rule(constraint, where, profile)
        if isinstance(rule, Fatal):
            return rule
        rules.append(rule)
    return ParsedClaim(tuple(requests), tuple(rules))


def attributes(claims: Iterable[ParsedClaim]) -> tuple[str, ...]:
    """Return the attributes that constraints of these claims compare, in order of names."""
    return tuple(sorted({rule.attribute for claim in claims for rule in claim.rules}))


def parsed_requests(claims: Iterable[ParsedClaim]) -> tuple[ParsedRequest, ...]:
    """Return the distinct parsed requests of these claims, in order of first use."""
    return tuple(dict.fromkeys(option.parsed for option in options(claims)))


def options(claims: Iterable[ParsedClaim]) -> Iterable[Option]:
    """Yield every option of every request of these claims."""
    return (option for claim in claims for request in claim.requests for option in request.options)


def _request(
    request: Request, classes: Mapping[str, DeviceClass], where: str, profile: SchedulerProfile
) -> RequestAlternatives | Fatal:
    place = f"request {request.name} of {where}"
    if request.first_available and not profile.features.prioritized_list:
        return Fatal(f"{place} has alternatives, but the gate DRAPrioritizedList is off")
    found: list[Option] = []
    for alternative in request.alternatives:
        name = f"{request.name}/{alternative.name}" if request.first_available else request.name
        option = _option(alternative, name, classes, f"request {name} of {where}", profile)
        if isinstance(option, Fatal):
            return replace(option, request=name)
        found.append(option)
    return RequestAlternatives(request.name, tuple(found), request.first_available)


def _option(
    option: DeviceRequest, name: str, classes: Mapping[str, DeviceClass], place: str, profile: SchedulerProfile
) -> Option | Fatal:
    if problem := _disabled(option, profile):
        return Fatal(f"{place} {problem}")
    if not option.device_class:
        return Fatal(f"{place} names no device class")
    device_class = classes.get(option.device_class)
    if device_class is None:
        return Fatal(f"{place} asks for device class {option.device_class}, which does not exist")
    if option.mode not in (EXACT_COUNT, ALL):
        return Fatal(f"{place} has allocationMode {option.mode}, which is neither {EXACT_COUNT} nor {ALL}")
    parsed = ParsedRequest(
        device_class=option.device_class,
        texts=selectors.joined(device_class.selectors, option.selectors),
        tolerations=option.tolerations if profile.features.taints else (),
        needs=tuple(sorted((option.capacity or {}).items())),
        inexact=option.inexact,
    )
    return Option(name, parsed, option.count, Mode(option.mode), bool(option.admin_access), option.tolerations)


def _disabled(option: DeviceRequest, profile: SchedulerProfile) -> str | None:
    """Return which field of the option needs a feature gate that is off; None if there is none."""
    features = profile.features
    if option.capacity is not None and not features.consumable_capacity:
        return "asks for capacity, but the gate DRAConsumableCapacity is off"
    if option.admin_access is not None and not features.admin_access:
        return "asks for admin access, but the gate DRAAdminAccess is off"
    if option.derived and not profile.release.before_1_37:
        return "has derived attributes, but their gate is off"
    return None


def _rule(constraint: Constraint, where: str, profile: SchedulerProfile) -> Rule | Fatal:
    if constraint.distinct is not None and profile.release.before_1_36 and not profile.features.consumable_capacity:
        return Fatal(f"{where} has a distinctAttribute, but the gate DRAConsumableCapacity is off")
    attribute = constraint.distinct if constraint.match is None else constraint.match
    if attribute is None:
        return Fatal(f"{where} has a constraint that is neither matchAttribute nor distinctAttribute")
    return Rule(attribute, constraint.match is None, frozenset(constraint.requests))
