"""Programs over `device` (selectors of claims and meters, prices): compiled once, evaluated on many devices.

`compile_device` and `device_value` are pure, so callers may cache their results.
"""

from dataclasses import dataclass, field
from typing import Any

from admission.api.kubernetes import devices
from admission.cel import front_end
from admission.cel.check import type_checker
from admission.cel.core import ast, budget, errors, values
from admission.cel.core.activation import COST, FIRST_VARIABLE, STEPS, Activation, Interpretable
from admission.cel.cost import static_cost as cost_static_cost
from admission.cel.eval import interpreter
from admission.cel.front_end import Result
from admission.cel.library import quantities
from admission.device_cel import environment as device_environment, vectorized
from admission.device_cel.parse_cache import ParseCache

CompileError = errors.CompileError
EvaluationError = errors.EvaluationError


@dataclass(frozen=True, slots=True)
class DeviceValue:
    """The CEL value of a device: the map to which `device` is bound."""

    device: values.StringMap


@dataclass(frozen=True, slots=True)
class UnreadableDevice:
    """A device on which every expression fails, even `true`, since one of its attributes has no known value."""

    message: str

    def error(self) -> EvaluationError:
        """Return the error of any evaluation on the device."""
        return EvaluationError(self.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A compiled expression over `device`. It is stateless: several threads may evaluate it.

    tracks_cost: whether evaluating counts its cost; others cannot come near the limit. vector_program: evaluates all
    devices of a slice at once, if the expression has one. copies_amounts: whether an evaluation may change capacities
    in place and would notice that.
    """

    text: str
    result: Result
    tracks_cost: bool
    vector_program: vectorized.VectorProgram | None
    copies_amounts: bool
    interpretable: Interpretable = field(repr=False)
    size: int
    """The length of an activation."""

    def evaluate(self, device: DeviceValue | UnreadableDevice, *, steps: int = budget.STEPS) -> bool | int:
        """Return the expression's value on a device: a bool, or an int for a price. steps: the most turns of loops.

        Raises EvaluationError, always on an unreadable device.
        """
        return self._evaluate(device, _activation(self.size, steps))

    def measure(self, device: DeviceValue | UnreadableDevice) -> tuple[bool | int | EvaluationError, int]:
        """Return the value or the error, and the runtime cost: 0 unless the program tracks it."""
        activation = _activation(self.size)
        try:
            return self._evaluate(device, activation), activation[COST]
        except EvaluationError as error:
            return error, activation[COST]

    def _evaluate(self, device: DeviceValue | UnreadableDevice, activation: Activation) -> bool | int:
        if isinstance(device, UnreadableDevice):
            raise device.error()
        activation[FIRST_VARIABLE] = _with_own_amounts(device.device) if self.copies_amounts else device.device
        value: bool | int = _evaluate(self.interpretable, activation, self.result)
        return value


def _depends_on_form(checked: type_checker.CheckedAst) -> bool:
    return any(
        overload.name in quantities.DEPEND_ON_FORM for overloads in checked.overloads.values() for overload in overloads
    )


def _with_own_amounts(device: values.StringMap) -> values.StringMap:
    """Return the device with copies of its capacities, as Kubernetes has them when it first looks at a slice.

    1.36 adds to the slice itself, so that its answer depends on how often it has looked; that is not mirrored.
    """
    capacity = values.DomainMap()
    for domain, amounts in device["capacity"].items():
        capacity[domain] = values.StringMap({name: quantities.copied(amount) for name, amount in amounts.items()})
    return values.StringMap({**device, "capacity": capacity})


def _activation(size: int, steps: int = budget.STEPS) -> Activation:
    activation: Activation = [None] * size
    activation[STEPS] = steps
    activation[COST] = 0
    return activation


def _evaluate(interpretable: Interpretable, activation: Activation, result: Result) -> Any:
    """Evaluate, and check the type of the value."""
    try:
        value = interpretable(activation)
    except RecursionError:
        raise EvaluationError("the expression nests too deeply to be evaluated") from None
    if type(value) is _RESULTS[result]:
        return value
    raise EvaluationError(f"CEL result of type {values.type_name(value)} could not be converted to {result.value}")


_RESULTS: dict[Result, type[bool | int | str]] = {Result.BOOL: bool, Result.INT: int, Result.STRING: str}

UNTRACKED_BOUND = 100_000
"""Expressions whose bound is at most this are not tracked: a tenth of the limit, so that values of a device that are
longer than the API allows do not matter either."""


def compile_device(
    text: str,
    *,
    result: Result = Result.BOOL,
    profile: device_environment.Profile = device_environment.DEFAULT,
    always_tracks_cost: bool = False,
    parse_cache: ParseCache | None = None,
) -> Program | CompileError:
    """Compile an expression over `device`. Never raises for an invalid expression.

    always_tracks_cost: track the cost of any expression, for `measure`. parse_cache: the cache of a vector program;
    without one there is none.
    """
    environment = device_environment.for_device(profile)
    try:
        root, checked = front_end.check(text, result, environment)
        tracks_cost = always_tracks_cost or cost_static_cost.bound(root, checked, environment) > UNTRACKED_BOUND
        interpretable, size = interpreter.plan(root, checked, environment, tracks_cost=tracks_cost)
        vector_program = (
            None if tracks_cost or parse_cache is None else vectorized.compile_loop(root, checked, parse_cache)
        )
    except errors.RefusalError as refusal:
        return errors.compile_error(text, refusal)
    except RecursionError:
        return errors.compile_error(text, errors.RefusalError(-1, "max recursion depth exceeded"))
    return Program(
        text=text,
        result=result,
        tracks_cost=tracks_cost,
        vector_program=vector_program,
        copies_amounts=_depends_on_form(checked),
        interpretable=interpretable,
        size=size,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """An expression that compiles: its nodes, its program without a vector program, and its static cost."""

    root: ast.Node = field(repr=False)
    program: Program
    cost: int


def analyze(
    text: str, *, result: Result = Result.BOOL, profile: device_environment.Profile = device_environment.DEFAULT
) -> Analysis | CompileError:
    """Parse, check and plan an expression over `device` once, for all that admission asks of it."""
    environment = device_environment.for_device(profile)
    try:
        root, checked = front_end.check(text, result, environment)
        tracks_cost = cost_static_cost.bound(root, checked, environment) > UNTRACKED_BOUND
        interpretable, size = interpreter.plan(root, checked, environment, tracks_cost=tracks_cost)
        cost = cost_static_cost.worst_case(root, checked, environment)
    except errors.RefusalError as refusal:
        return errors.compile_error(text, refusal)
    except RecursionError:
        return errors.compile_error(text, errors.RefusalError(-1, "max recursion depth exceeded"))
    program = Program(
        text=text,
        result=result,
        tracks_cost=tracks_cost,
        vector_program=None,
        copies_amounts=_depends_on_form(checked),
        interpretable=interpretable,
        size=size,
    )
    return Analysis(root=root, program=program, cost=cost)


def static_cost(
    text: str, *, result: Result = Result.BOOL, profile: device_environment.Profile = device_environment.DEFAULT
) -> int | CompileError:
    """Return the static cost of an expression over `device`, at most 2^64-1, or why it does not compile."""
    analysis = analyze(text, result=result, profile=profile)
    return analysis.cost if isinstance(analysis, Analysis) else analysis


def device_value(
    driver: str, device: devices.Device, *, lists: bool = False, parse_cache: ParseCache | None = None
) -> DeviceValue | UnreadableDevice:
    """Return the CEL value of a device.

    lists: whether attributes may be lists, the gate DRAListTypeAttributes (1.37: always). parse_cache: a cache that
    several devices share. Source: k8s.io/dynamic-resource-allocation cel/compile.go, DeviceMatches (v0.36).
    """
    cache = parse_cache or ParseCache()
    attributes = values.DomainMap()
    for name, value in device.attributes.items():
        try:
            _set(attributes, name, driver, _attribute(value, cache, lists=lists))
        except EvaluationError as error:
            return UnreadableDevice(f"attribute {name}: {error}")
    capacity = values.DomainMap()
    for name, amount in device.capacity.items():
        try:
            _set(capacity, name, driver, cache.amounts[amount.text])
        except EvaluationError as error:
            return UnreadableDevice(f"capacity {name}: {error}")
    return DeviceValue(
        values.StringMap(
            driver=driver,
            attributes=attributes,
            capacity=capacity,
            allowMultipleAllocations=device.allows_multiple,
        )
    )


def _set(domains: values.DomainMap, name: str, driver: str, value: object) -> None:
    domain, slash, plain = name.partition("/")
    if not slash:
        domain, plain = driver, name
    names = domains.get(domain)
    if names is None:
        names = domains[domain] = values.StringMap()
    names[plain] = value


def _attribute(value: devices.AttributeValue | None, parse_cache: ParseCache, *, lists: bool) -> object:
    if type(value) in _SCALARS:
        return value
    if isinstance(value, devices.Version):
        try:
            return parse_cache.versions[value]
        except EvaluationError as error:
            raise EvaluationError(f"parse semantic version: {error}") from None
    if isinstance(value, tuple) and lists:
        return tuple(_attribute(element, parse_cache, lists=False) for element in value)
    raise EvaluationError("unsupported attribute value")


_SCALARS = frozenset({str, int, bool})
