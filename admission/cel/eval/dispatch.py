"""Call dispatch: the choice of an overload by the run-time types of the arguments.

The checker has selected the overloads that fit the static types. Operators that check their operands themselves are
called directly; where one overload fits, the classes of its arguments are checked; where several fit, all overloads of
the function are tried.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from admission.cel import environment
from admission.cel.check import validators
from admission.cel.core import budget, equality, errors, values
from admission.cel.core.activation import STEPS, Activation, Interpretable, charge_steps
from admission.cel.core.declarations import Implementation, Overload
from admission.cel.library import quantities

_SELF_CHECKING = frozenset({"_<_", "_<=_", "_>_", "_>=_"})
_BUILT_CONTAINERS: frozenset[type] = values.MAPS | {tuple, values.Optional}
_TRAVERSING = frozenset(
    {
        *("includes", "indexOf", "lastIndexOf", "distinct", "format", "isSorted", "sum", "min", "max"),
        *("sets.contains", "sets.equivalent", "sets.intersects"),
    }
)
"""Functions that traverse nested lists, or whose cost rule does."""

_PRIMITIVES = frozenset({bool, int, values.Uint, float, str})
_PARSERS = frozenset({"quantity", "semver", "ip", "cidr", "url"})
"""Functions that are computed once for constants. A failure is an error of the evaluation, as in cel-go."""

_LAZY = frozenset({"or", "orValue"})
_BUILDING = frozenset({"string", "bytes", "list"})
_BUILT_TYPES = frozenset({str, bytes, tuple})


def plan_call(  # noqa: PLR0911 - one line a case
    overloads: Sequence[Overload],
    environment: environment.Environment,
    operands: Sequence[Interpretable],
    constants: Sequence[Any],
) -> Interpretable:
    """Plan a call of one function."""
    first = overloads[0]
    operands = cast_arguments(overloads, operands)
    left, right = operands[0] if operands else _no_argument, operands[-1] if operands else _no_argument
    if first.name in _PARSERS and validators.NOT_CONSTANT not in constants:
        return _computed_once(overloads, constants)
    if first.name in _LAZY and first.member:
        return _lazy_or(left, right, whole=first.name == "or")
    if first.name == "_==_":
        return _equality(left, right, constants[1])
    if first.name == "_!=_":
        return _stepped_binary(first.run, left, right)
    if first.name in _SELF_CHECKING:
        return _binary(first.run, left, right)
    if first.name == "@in":
        return _membership(left, right, constants[1] if is_literal_set(overloads, constants[1]) else None)
    prepared = first.prepare(constants) if first.prepare else None
    if prepared is not None:
        return _size_charged(first, _checked(first, prepared, operands))
    if first.name in _TRAVERSING:
        return _size_charged(first, _dispatched(overloads, operands, charges_steps=True))
    if len(overloads) == 1:
        return _size_charged(first, _checked(first, first.run, operands))
    candidates = [overload for overload in environment.functions[first.name] if _has_same_arity(overload, first)]
    return _size_charged(first, _dispatched(candidates, operands))


_UNCHECKED_CASTS: Mapping[str, tuple[int, type]] = MappingProxyType(
    {"distinct": (0, tuple), "sort": (0, tuple), "flatten": (1, int)}
)
"""Functions whose cost rule in cel-go casts an argument to a list or int unchecked. Another value, or an error, crashes
it (ext/lists.go)."""


def cast_arguments(overloads: Sequence[Overload], operands: Sequence[Interpretable]) -> Sequence[Interpretable]:
    """Return the arguments of a call. The one that cel-go casts unchecked may crash."""
    if len(overloads) > 1 or overloads[0].name not in _UNCHECKED_CASTS:
        return operands
    index, class_ = _UNCHECKED_CASTS[overloads[0].name]
    return [unchecked_cast(operand, class_) if place == index else operand for place, operand in enumerate(operands)]


def unchecked_cast(argument: Interpretable, class_: type) -> Interpretable:
    """Plan an argument that must be of a class. Anything else aborts the evaluation."""

    def run(activation: Activation) -> Any:
        try:
            value = argument(activation)
        except errors.AbortError:
            raise
        except errors.EvaluationError:
            raise errors.AbortError("internal error: interface conversion of an error") from None
        if type(value) is not class_:
            raise errors.AbortError(f"internal error: interface conversion: {values.type_name(value)}")
        return value

    return run


def checked_key(key: Any) -> Any:
    """Return a value as a key of a map literal. Raises AbortError for a value on which cel-go crashes."""
    equality.check_hashable(key)
    return values.key_of(key)


def is_free(overloads: Sequence[Overload], constants: Sequence[Any]) -> bool:
    """Whether a call charges nothing of its own: `or` and `orValue`, and `in` a literal set."""
    first = overloads[0]
    if first.name == "@in":
        return is_literal_set(overloads, constants[1])
    return first.name in _LAZY and first.member


def _no_argument(_: Activation) -> Any:
    raise AssertionError("a call without arguments")


def _computed_once(overloads: Sequence[Overload], constants: Sequence[Any]) -> Interpretable:
    """Compute the call now, and return its value, or raise its failure, at each evaluation.

    A quantity is a new one each time, since its amount may be changed in place.
    """
    for overload in overloads:
        if _accepts(overload.classes, constants):
            try:
                value = overload.run(*constants)
            except errors.EvaluationError as error:
                return _failing(type(error), str(error))
            if type(value) is values.Quantity:
                return lambda _: quantities.copied(value)
            return lambda _: value
    return _failing(errors.EvaluationError, f"no such overload: {overloads[0].name}")


def _failing(kind: type[errors.EvaluationError], message: str) -> Interpretable:
    def run(_: Activation) -> Any:
        raise kind(message)

    return run


def _has_same_arity(overload: Overload, other: Overload) -> bool:
    return overload.member is other.member and len(overload.parameters) == len(other.parameters)


def _binary(run: Implementation, left: Interpretable, right: Interpretable) -> Interpretable:
    return lambda activation: run(left(activation), right(activation))


def _stepped_binary(run: Implementation, left: Interpretable, right: Interpretable) -> Interpretable:
    """Charge steps for a comparison of nested lists, whose leaves no cost covers."""

    def call(activation: Activation) -> Any:
        one, other = left(activation), right(activation)
        if type(one) in _BUILT_CONTAINERS and type(other) in _BUILT_CONTAINERS:
            charge_steps(activation, budget.nested_work((one, other)))
        return run(one, other)

    return call


def _equality(left: Interpretable, right: Interpretable, constant: Any) -> Interpretable:
    """Compare, directly when the left has the class of the constant on the right."""
    kind = type(constant)
    if kind not in (str, bool, int):
        return _stepped_binary(equality.equal, left, right)

    def run(activation: Activation) -> bool:
        value = left(activation)
        if type(value) is kind:
            return bool(value == constant)
        return equality.equal(value, constant)

    return run


def is_literal_set(overloads: Sequence[Overload], constant: Any) -> bool:
    """Whether the container of `in` is a literal list of strings, numbers or bools, of which cel-go makes a set."""
    return (
        len(overloads) == 1
        and overloads[0].parameters[1].name == "list"
        and type(constant) is tuple
        and all(type(element) in _PRIMITIVES for element in constant)
    )


def _membership(needle: Interpretable, container: Interpretable, constant: tuple[Any, ...] | None) -> Interpretable:
    if constant is None:
        return _stepped_binary(equality.contains, needle, container)
    texts = frozenset(element for element in constant if type(element) is str)

    def run(activation: Activation) -> bool:
        value = needle(activation)
        if type(value) is str:
            return value in texts
        return equality.contains_literal(value, constant)

    return run


def _lazy_or(optional: Interpretable, other: Interpretable, *, whole: bool) -> Interpretable:
    """Plan `or` (whole) and `orValue`, which return a value that is no optional unchanged."""

    def run(activation: Activation) -> Any:
        value = optional(activation)
        if type(value) is not values.Optional:
            return value
        if value.present:
            return value if whole else value.value
        return other(activation)

    return run


def _size_charged(overload: Overload, call: Interpretable) -> Interpretable:
    """Charge steps for the size of a built value, so that loops of builders end."""
    if overload.result.name not in _BUILDING and overload.name != "_+_":
        return call

    def run(activation: Activation) -> Any:
        value = call(activation)
        if type(value) in _BUILT_TYPES:
            activation[STEPS] -= budget.charge_size(len(value))
            if activation[STEPS] < 0:
                raise budget.exceeded()
        return value

    return run


def _checked(overload: Overload, run: Implementation, operands: Sequence[Interpretable]) -> Interpretable:
    """Call the overload if the classes of the arguments are accepted."""
    name, classes = overload.name, overload.classes
    if len(operands) == 1 and classes[0] is not None:
        return _checked_unary(name, run, operands[0], classes[0])
    if len(operands) == 2 and classes[0] is not None and classes[1] is not None:
        return _checked_binary(name, run, (operands[0], classes[0]), (operands[1], classes[1]))

    def call(activation: Activation) -> Any:
        arguments = [argument(activation) for argument in operands]
        if not _accepts(classes, arguments):
            raise errors.no_such_overload(name)
        return run(*arguments)

    return call


def _checked_unary(name: str, run: Implementation, argument: Interpretable, classes: frozenset[type]) -> Interpretable:
    def call(activation: Activation) -> Any:
        value = argument(activation)
        if type(value) not in classes:
            raise errors.no_such_overload(name)
        return run(value)

    return call


def _checked_binary(
    name: str,
    run: Implementation,
    first: tuple[Interpretable, frozenset[type]],
    second: tuple[Interpretable, frozenset[type]],
) -> Interpretable:
    left, left_classes = first
    right, right_classes = second

    def call(activation: Activation) -> Any:
        one, other = left(activation), right(activation)
        if type(one) not in left_classes or type(other) not in right_classes:
            raise errors.no_such_overload(name)
        return run(one, other)

    return call


def _dispatched(
    overloads: Sequence[Overload], operands: Sequence[Interpretable], *, charges_steps: bool = False
) -> Interpretable:
    name = overloads[0].name

    def call(activation: Activation) -> Any:
        arguments = [argument(activation) for argument in operands]
        if charges_steps:
            charge_steps(activation, budget.nested_work(arguments))
        for overload in overloads:
            if _accepts(overload.classes, arguments):
                return overload.run(*arguments)
        raise errors.no_such_overload(name)

    return call


def _accepts(classes: Sequence[frozenset[type] | None], arguments: Sequence[Any]) -> bool:
    for accepted, argument in zip(classes, arguments, strict=True):
        if accepted is not None and type(argument) not in accepted:
            return False
    return True
