"""Programs of device selectors, meters' selectors and prices: compiled once, evaluated on many devices.

`compile_device` and `device_value` are pure, so callers may cache what they return.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from admission.api.kubernetes import devices
from admission.cel import environment as cel_environment
from admission.cel.check import type_checker, validators
from admission.cel.core import ast, budget, errors, types, values
from admission.cel.core.activation import COST, FIRST_VARIABLE, STEPS, Activation, Interpretable
from admission.cel.cost import static_cost as cost_static_cost
from admission.cel.eval import interpreter, vectorized
from admission.cel.eval.parse_cache import ParseCache
from admission.cel.syntax import parser

CompileError = errors.CompileError
EvaluationError = errors.EvaluationError


class Result(StrEnum):
    """What a text must evaluate to."""

    BOOL = "bool"
    """A selector's answer."""

    INT = "int"
    """A price."""

    STRING = "string"
    """A message, or a value that a rule computes."""


@dataclass(frozen=True, slots=True)
class DeviceValue:
    """A device as expressions see it: the map that `device` means."""

    device: values.StringMap


@dataclass(frozen=True, slots=True)
class UnreadableDevice:
    """A device on which every expression fails, even `true`: one of its attributes has no value that is known."""

    message: str

    def error(self) -> EvaluationError:
        """Return what evaluating anything on the device raises."""
        return EvaluationError(self.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A text that compiled. Holds no state: evaluating is safe in several threads.

    counts: whether evaluating counts its cost; other texts cannot come near the limit. sweep: the same for all devices
    of a slice at once, if the text has one.
    """

    text: str
    result: Result
    tracks_cost: bool
    vector_program: vectorized.VectorProgram | None
    run: Interpretable = field(repr=False)
    size: int
    """The length of an activation."""

    def evaluate(self, device: DeviceValue | UnreadableDevice) -> bool | int:
        """Return the text's value on a device: a bool, or an int for a price.

        Raises EvaluationError, always on an unreadable device.
        """
        return self._evaluate(device, _activation(self.size))

    def measure(self, device: DeviceValue | UnreadableDevice) -> tuple[bool | int | EvaluationError, int]:
        """Return the value, or the error, and what evaluating cost: 0 unless the program counts."""
        activation = _activation(self.size)
        try:
            return self._evaluate(device, activation), activation[COST]
        except EvaluationError as error:
            return error, activation[COST]

    def _evaluate(self, device: DeviceValue | UnreadableDevice, activation: Activation) -> bool | int:
        if isinstance(device, UnreadableDevice):
            raise device.error()
        activation[FIRST_VARIABLE] = device.device
        value: bool | int = _finished(self.run, activation, self.result)
        return value


def _activation(size: int) -> Activation:
    activation: Activation = [None] * size
    activation[STEPS] = budget.STEPS
    activation[COST] = 0
    return activation


def _finished(run: Interpretable, activation: Activation, result: Result) -> Any:
    """Evaluate, and return a value of the type that is wanted."""
    try:
        value = run(activation)
    except RecursionError:
        raise EvaluationError("the expression nests too deeply to be evaluated") from None
    if type(value) is _RESULTS[result]:
        return value
    raise EvaluationError(f"CEL result of type {values.type_name(value)} could not be converted to {result.value}")


_RESULTS: dict[Result, type[bool | int | str]] = {Result.BOOL: bool, Result.INT: int, Result.STRING: str}

SURELY_CHEAP = 100_000
"""Texts that cost no more, by their bound, are evaluated without counting: a tenth of the limit, so that a device with
values longer than the API takes does not matter either."""


def compile_device(
    text: str,
    *,
    result: Result = Result.BOOL,
    profile: cel_environment.Profile = cel_environment.DEFAULT,
    always_tracks_cost: bool = False,
    parse_cache: ParseCache | None = None,
) -> Program | CompileError:
    """Compile an expression over `device`. Never raises because of the text.

    always_counts: count the cost of any text, for `measure`. readings: what a sweep remembers; without, there is none.
    """
    environment = cel_environment.for_device(profile)
    try:
        root, checked = check(text, result, environment)
        tracks_cost = always_tracks_cost or cost_static_cost.bound(root, checked, environment) > SURELY_CHEAP
        run, size = interpreter.plan(root, checked, environment, tracks_cost=tracks_cost)
        vector_program = None if tracks_cost or parse_cache is None else vectorized.write(root, checked, parse_cache)
    except errors.RefusalError as refusal:
        return errors.compile_error(text, refusal)
    except RecursionError:
        return errors.compile_error(text, errors.RefusalError(-1, "max recursion depth exceeded"))
    return Program(text=text, result=result, tracks_cost=tracks_cost, vector_program=vector_program, run=run, size=size)


def static_cost(
    text: str, *, result: Result = Result.BOOL, profile: cel_environment.Profile = cel_environment.DEFAULT
) -> int | CompileError:
    """Return what evaluating an expression over `device` costs at most, at most 2^64-1, or why it does not compile."""
    environment = cel_environment.for_device(profile)
    try:
        root, checked = check(text, result, environment)
        interpreter.plan(root, checked, environment, tracks_cost=False)
        return cost_static_cost.worst_case(root, checked, environment)
    except errors.RefusalError as refusal:
        return errors.compile_error(text, refusal)
    except RecursionError:
        return errors.compile_error(text, errors.RefusalError(-1, "max recursion depth exceeded"))


def check(
    text: str, result: Result | None, environment: cel_environment.Environment
) -> tuple[ast.Node, type_checker.CheckedAst]:
    """Return a text's nodes and their types. result: what it must give, None for anything. Raises RefusalError."""
    root = parser.parse(text, escapes=environment.escapes)
    checked = type_checker.check(root, environment)
    validators.validate(root, checked)
    if result is not None:
        _check_result(checked.type_of(root), result, environment)
    return root, checked


def _check_result(type_: types.Type, result: Result, environment: cel_environment.Environment) -> None:
    if type_.name in (result.value, environment.unknown_result.name):
        return
    if environment.release >= 37 and type_ == types.wrapper_of(types.BOOL) and result is Result.BOOL:
        return
    raise errors.RefusalError(-1, f"must evaluate to {result.value} or the unknown type, not {type_}")


def device_value(
    driver: str, device: devices.Device, *, lists: bool = False, parse_cache: ParseCache | None = None
) -> DeviceValue | UnreadableDevice:
    """Return a device as expressions see it.

    lists: whether attributes may be lists, the gate DRAListTypeAttributes (1.37: always). readings: what remembers the
    texts that devices repeat. Source: k8s.io/dynamic-resource-allocation cel/compile.go, DeviceMatches (v0.36).
    """
    known = parse_cache or ParseCache()
    attributes = values.DomainMap()
    for name, value in device.attributes.items():
        try:
            _put(attributes, name, driver, _attribute(value, known, lists=lists))
        except EvaluationError as error:
            return UnreadableDevice(f"attribute {name}: {error}")
    capacity = values.DomainMap()
    for name, amount in device.capacity.items():
        try:
            _put(capacity, name, driver, known.amounts[amount.text])
        except EvaluationError as error:
            return UnreadableDevice(f"capacity {name}: {error}")
    return assembled(driver, attributes, capacity, allows_multiple=device.allows_multiple)


def assembled(
    driver: str, attributes: values.DomainMap, capacity: values.DomainMap, *, allows_multiple: bool
) -> DeviceValue:
    """Put a device's parts together."""
    return DeviceValue(
        values.StringMap(
            driver=driver,
            attributes=attributes,
            capacity=capacity,
            allowMultipleAllocations=allows_multiple,
        )
    )


def _put(domains: values.DomainMap, name: str, driver: str, value: object) -> None:
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
