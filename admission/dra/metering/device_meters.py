"""The charge of claims: meter → amount, exact, in the meter's base unit.

It is computed from the devices that are planned or allocated. Within a meter every source that knows the class adds its
part, and a device may be charged by several meters. An amount that cannot be computed is an error value that names
device, meter and fix: a device is never free by accident.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from admission.api.kubernetes.claims import ALL, ClaimSpec, DeviceRequest, Request
from admission.api.kubernetes.devices import Device, DeviceId, RequestDevice
from admission.api.muster.gangs import Charge
from admission.api.muster.meters import AdminAccess, Measure, Meter, Source
from admission.api.values import quantities
from admission.api.values.names import MeterName
from admission.cel.core.errors import EvaluationError
from admission.cel.front_end import Result
from admission.cel.limits import Inadmissible
from admission.device_cel import limits, programs
from admission.dra.metering import cel_advice
from admission.dra.metering.resource_rates import Rates
from admission.errors import AmountError, Problem

MeterProblem = tuple[MeterName, Problem]


Mark = tuple[MeterName, int]
"""A source that counts claims: its meter and its index there."""


@dataclass(frozen=True, slots=True)
class ChargeError:
    """A device that cannot be charged: the meter, and a message with the fix."""

    meter: MeterName
    message: str


Consumed = Mapping[str, Fraction | int] | None
"""What a share consumes of a device's capacities; None where the device is not shared."""


class PricedDevice(NamedTuple):
    """A device of a claim, as the slice describes it."""

    request: RequestDevice
    device: Device
    admin_access: bool = False
    consumed: Consumed = None


@dataclass(frozen=True, slots=True, eq=False)
class _Rule:
    """A source with its CEL compiled. path: its field, `spec.sources[0]`."""

    path: str
    source: Source
    classes: frozenset[str]
    selector: programs.Program | None
    price: programs.Program | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Meters:
    """Every meter, compiled. problems: by meter, for its status; classes of an invalid meter cannot be allocated."""

    meters: Mapping[MeterName, Meter] = field(default_factory=dict)
    problems: Mapping[MeterName, tuple[Problem, ...]] = field(default_factory=dict)
    rules: Mapping[MeterName, tuple[_Rule, ...]] = field(default_factory=dict)
    known: frozenset[str] = frozenset()
    """Every class that some meter knows."""
    rates: Mapping[MeterName, Rates] = field(default_factory=dict)
    """By meter that counts what pods request of nodes: how."""
    resources: frozenset[str] = frozenset()
    """Every resource of nodes that some meter counts."""

    def certain(self, name: MeterName, device_class: str) -> bool:
        """Return whether a meter counts every device of a class without evaluating the device."""
        return all(
            rule.source.selector is None and rule.source.measure in (Measure.CLAIMS, Measure.COUNT)
            for rule in self.rules[name]
            if device_class in rule.classes
        )

    def is_exact(self, name: MeterName, option: DeviceRequest) -> bool:
        """Return whether `lower_bound` has all that a meter counts of a request, whichever devices it gets."""
        return option.mode != ALL and all(
            rule.source.measure in (Measure.CLAIMS, Measure.COUNT) and _is_certain(rule, option)
            for rule in self.rules[name]
            if option.device_class in rule.classes
        )

    def unmetered(self, spec: ClaimSpec) -> tuple[str, ...]:
        """Return the classes of a claim that no meter knows, in order of names. Free admin access counts as known."""
        return tuple(sorted({request.device_class for request in _alternatives(spec)} - self.known))


NONE = Meters()
"""No meters: everything is free."""


def compile_meters(meters: Iterable[Meter]) -> Meters:
    """Compile every meter's CEL; texts that do not compile are problems with their field path."""
    by_name = {meter.name: meter for meter in sorted(meters, key=lambda meter: meter.name)}
    problems: dict[MeterName, tuple[Problem, ...]] = {}
    rules: dict[MeterName, tuple[_Rule, ...]] = {}
    for name, meter in by_name.items():
        found: list[Problem] = []
        rules[name] = tuple(_rule(source, f"spec.sources[{at}]", found) for at, source in enumerate(meter.sources))
        if found:
            problems[name] = tuple(found)
    return Meters(
        meters=by_name,
        problems=problems,
        rules=rules,
        known=classes_known(by_name.values()),
        rates={name: Rates.build(meter.resources) for name, meter in by_name.items() if meter.resources},
        resources=frozenset(rate.name for meter in by_name.values() for rate in meter.resources),
    )


def classes_known(meters: Iterable[Meter]) -> frozenset[str]:
    """Return every device class that some meter knows."""
    return frozenset(name for meter in meters for name in meter.classes)


def charge(meters: Meters, spec: ClaimSpec, given: Sequence[PricedDevice]) -> Charge | ChargeError:
    """Return the charge of a claim with these devices."""
    total: dict[MeterName, int] = {}
    for meter in meters.meters:
        amount = _claim_amount(meters, meter, spec, given)
        if isinstance(amount, ChargeError):
            return amount
        if amount:
            total[meter] = amount
    return total


def price(
    meters: Meters, device_class: str, device_id: DeviceId, device: Device, consumed: Consumed = None
) -> Charge | ChargeError:
    """Return the charge of one device, or a share of it, given for a class, for all measures but `claims`."""
    total: dict[MeterName, int] = {}
    for meter in meters.meters:
        amount = _device_amount(meters, meter, device_class, device_id, device, consumed)
        if isinstance(amount, ChargeError):
            return amount
        if amount:
            total[meter] = amount
    return total


def marks(meters: Meters, device_class: str, device_id: DeviceId, device: Device) -> frozenset[Mark] | ChargeError:
    """Return the sources by which a device, given for a class, makes its claim count: each counts a claim once."""
    found: set[Mark] = set()
    for name in meters.meters:
        marked = _marks(meters, name, device_class, device_id, device)
        if isinstance(marked, ChargeError):
            return marked
        found |= marked
    return frozenset(found)


def failure(
    meters: Meters, name: MeterName, device_class: str, device_id: DeviceId, device: Device
) -> ChargeError | None:
    """Return why one meter cannot count a device that is given for a class; None when it can."""
    amount = _device_amount(meters, name, device_class, device_id, device)
    if isinstance(amount, ChargeError):
        return amount
    marked = _marks(meters, name, device_class, device_id, device)
    return marked if isinstance(marked, ChargeError) else None


def lower_bound(meters: Meters, spec: ClaimSpec) -> Charge:
    """Return a lower bound on the charge of a claim, whichever devices it gets.

    Only certain amounts are in it: of sources that measure claims or counts, or a capacity of which the request asks
    for an amount, and have no selector or one that the request has word by word. Of a request with alternatives the
    cheapest counts, meter by meter.
    """
    total: dict[MeterName, int] = {}
    for name, meter in meters.meters.items():
        rules = meters.rules[name]
        counted = sum(_least(rules, request, meter) for request in spec.requests)
        claims = sum(rule.source.measure is Measure.CLAIMS and _parsed_requests(rule, spec, meter) for rule in rules)
        if counted + claims:
            total[name] = counted + claims
    return total


def added(charges: Iterable[Charge]) -> dict[MeterName, int]:
    """Return the sum of charges. Raises AmountError when an amount is too large to be stored."""
    total: dict[MeterName, int] = {}
    for part in charges:
        for meter, amount in part.items():
            total[meter] = quantities.checked(total.get(meter, 0) + amount)
    return total


def _rule(source: Source, path: str, problems: list[Problem]) -> _Rule:
    selector = _compiled(source.selector, f"{path}.selector", Result.BOOL, problems)
    text = source.expression if source.measure is Measure.EXPRESSION else None
    expression = _compiled(text, f"{path}.expression.cel", Result.INT, problems)
    return _Rule(path, source, frozenset(source.classes), selector, expression)


def _compiled(text: str | None, path: str, result: Result, problems: list[Problem]) -> programs.Program | None:
    if text is None:
        return None
    analysis = limits.analyze(text, result=result)
    if isinstance(analysis, Inadmissible):
        error = analysis.error
        problems.append(Problem(path, f"is {analysis}" if error is None else cel_advice.compile_error(error, result)))
        return None
    return analysis.program


def _claim_amount(meters: Meters, name: MeterName, spec: ClaimSpec, given: Sequence[PricedDevice]) -> int | ChargeError:
    """Return the amount of a claim on one meter: its devices, and 1 for each source that counts claims."""
    meter = meters.meters[name]
    options = options_of(spec)
    paid = [
        (options[entry.request.request].device_class, entry)
        for entry in given
        if entry.request.request in options and not (entry.admin_access and meter.admin_access is AdminAccess.FREE)
    ]
    total = 0
    for device_class, entry in paid:
        amount = _device_amount(meters, name, device_class, entry.request.device, entry.device, entry.consumed)
        if isinstance(amount, ChargeError):
            return amount
        total += amount
    counted: set[Mark] = set()
    for device_class, entry in paid:
        found = marks(meters, device_class, entry.request.device, entry.device)
        if isinstance(found, ChargeError):
            return found
        counted |= found
    return _kept(name, total + sum(meter == name for meter, _ in counted))


def _marks(
    meters: Meters, name: MeterName, device_class: str, device_id: DeviceId, device: Device
) -> set[Mark] | ChargeError:
    found: set[Mark] = set()
    for at, rule in enumerate(meters.rules[name]):
        if rule.source.measure is Measure.CLAIMS and device_class in rule.classes:
            selected = _selected(name, rule, device_id, device)
            if isinstance(selected, ChargeError):
                return selected
            if selected:
                found.add((name, at))
    return found


def _device_amount(  # noqa: PLR0917 - what an amount is made of
    meters: Meters,
    name: MeterName,
    device_class: str,
    device_id: DeviceId,
    device: Device,
    consumed: Consumed = None,
) -> int | ChargeError:
    total = 0
    for rule in meters.rules[name]:
        if device_class not in rule.classes:
            continue
        if name in meters.problems:
            return ChargeError(name, f"meter {name} cannot be used: {meters.problems[name][0]}")
        amount = _measured(name, rule, device_id, device, consumed)
        if isinstance(amount, ChargeError):
            return amount
        total += amount
    return _kept(name, total)


def _measured(
    name: MeterName, rule: _Rule, device_id: DeviceId, device: Device, consumed: Consumed
) -> int | ChargeError:
    if rule.source.measure is Measure.CLAIMS:
        return 0
    selected = _selected(name, rule, device_id, device)
    if selected is not True:
        return selected
    return _MEASURES[rule.source.measure](name, rule, device_id, device, consumed)


def _selected(name: MeterName, rule: _Rule, device_id: DeviceId, device: Device) -> bool | ChargeError:
    if rule.selector is None:
        return True
    try:
        return _evaluate(rule.selector, device_id, device) is True
    except EvaluationError as error:
        fix = cel_advice.GUARDS[Result.BOOL]
        return ChargeError(name, f"meter {name}: {rule.path}.selector fails on device {device_id}: {error}; {fix}")


def _count(_name: MeterName, _rule: _Rule, _id: DeviceId, _device: Device, _consumed: Consumed) -> int | ChargeError:
    return 1


def _capacity(
    name: MeterName, rule: _Rule, device_id: DeviceId, device: Device, consumed: Consumed
) -> int | ChargeError:
    for key in _names(rule.source.name, device_id.driver):
        if key in device.capacity:
            return _ceiling(device.capacity[key].value if consumed is None else Fraction(consumed.get(key, 0)))
    return ChargeError(
        name,
        f"meter {name}: {rule.path}.capacity.name: device {device_id} has no capacity {rule.source.name};"
        " correct the name or give the source a selector",
    )


def _names(name: str, driver: str) -> tuple[str, ...]:
    """Return the names under which a slice may write an attribute: a name without a domain is the driver's."""
    domain, slash, rest = name.rpartition("/")
    if not slash:
        return (name, f"{driver}/{name}")
    return (name, rest) if domain == driver else (name,)


def _counter(
    name: MeterName, rule: _Rule, device_id: DeviceId, device: Device, _consumed: Consumed
) -> int | ChargeError:
    if not device.consumes:
        return ChargeError(
            name,
            f"meter {name}: {rule.path}.counter: device {device_id} draws from no counters; give the source a selector",
        )
    wanted = rule.source.counter_set
    uses = (use.counters for use in device.consumes if wanted is None or use.counter_set == wanted)
    return _ceiling(sum((counters.get(rule.source.name, Fraction(0)) for counters in uses), Fraction(0)))


def _expression(
    name: MeterName, rule: _Rule, device_id: DeviceId, device: Device, _consumed: Consumed
) -> int | ChargeError:
    if rule.price is None:
        return ChargeError(name, f"meter {name} cannot be used: its expression does not compile")
    place = f"meter {name}: {rule.path}.expression.cel"
    try:
        amount = _evaluate(rule.price, device_id, device)
    except EvaluationError as error:
        fix = cel_advice.GUARDS[Result.INT]
        return ChargeError(name, f"{place} fails on device {device_id}: {error}; {fix}")
    if isinstance(amount, bool) or amount < 0:
        fix = f"let it give 0 or more, as in `… > 0 ? … : 0`; {cel_advice.PAGE}"
        return ChargeError(name, f"{place} gives {amount} for device {device_id}; {fix}")
    return amount


def _evaluate(program: programs.Program, device_id: DeviceId, device: Device) -> bool | int:
    value = programs.device_value(device_id.driver, device, lists=True)
    if isinstance(value, programs.UnreadableDevice):
        raise value.error()
    return program.evaluate(value)


_MEASURES: Mapping[Measure, Callable[[MeterName, _Rule, DeviceId, Device, Consumed], int | ChargeError]] = {
    Measure.COUNT: _count,
    Measure.CAPACITY: _capacity,
    Measure.COUNTER: _counter,
    Measure.EXPRESSION: _expression,
}


def _ceiling(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)


def _kept(name: MeterName, amount: int) -> int | ChargeError:
    try:
        return quantities.checked(amount)
    except AmountError as error:
        return ChargeError(name, str(error))


def options_of(spec: ClaimSpec) -> dict[str, DeviceRequest]:
    """Return the device request of each name in results: `request`, or `request/alternative`."""
    return {
        f"{request.name}/{option.name}" if request.first_available else request.name: option
        for request in spec.requests
        for option in request.alternatives
    }


def _alternatives(spec: ClaimSpec) -> Iterable[DeviceRequest]:
    return (option for request in spec.requests for option in request.alternatives)


def _least(rules: Sequence[_Rule], request: Request, meter: Meter) -> int:
    """Return the least that a request is charged for the devices that it gets."""
    return min(
        (
            sum(_certain_amount(rule, option) for rule in rules) * (1 if option.mode == ALL else option.count)
            for option in request.alternatives
            if not _free(option, meter)
        ),
        default=0,
    )


def _parsed_requests(rule: _Rule, spec: ClaimSpec, meter: Meter) -> bool:
    """Return whether a request is for the source's classes, whichever alternative is chosen."""
    return any(
        all(_is_certain(rule, option) and not _free(option, meter) for option in request.alternatives)
        for request in spec.requests
    )


def _certain_amount(rule: _Rule, option: DeviceRequest) -> int:
    """Return what a source charges at least for each device that a request may get.

    A share consumes no less than what is asked for, and a device that is not shared has no less.
    """
    if not _is_certain(rule, option):
        return 0
    if rule.source.measure is Measure.COUNT:
        return 1
    if rule.source.measure is not Measure.CAPACITY or option.capacity is None or option.inexact:
        return 0
    return _ceiling(option.capacity.get(rule.source.name, Fraction(0)))


def _is_certain(rule: _Rule, option: DeviceRequest) -> bool:
    """Return whether a source counts every device that a request may get."""
    selector = rule.source.selector
    return option.device_class in rule.classes and (selector is None or selector in option.selectors)


def _free(option: DeviceRequest, meter: Meter) -> bool:
    return bool(option.admin_access) and meter.admin_access is AdminAccess.FREE
