"""Calls at run time: which overload takes these values.

The checker has left the overloads that fit the static types. Operators that judge their operands themselves are
called straight; where one overload fits, its classes are tested; where several do, all of the name are tried.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from admission.cel import environment
from admission.cel.check import validators
from admission.cel.core import budget, equality, errors, values
from admission.cel.core.activation import STEPS, Activation, Interpretable, charge_steps
from admission.cel.core.declarations import Implementation, Overload
from admission.cel.library import sorting

_SELF_JUDGING = frozenset({"_<_", "_<=_", "_>_", "_>=_"})
_BUILT_CONTAINERS: frozenset[type] = values.MAPS | {tuple, values.Optional}
_COMPARING = frozenset(
    {
        *("includes", "indexOf", "lastIndexOf", "distinct", "format", "isSorted", "sum", "min", "max"),
        *("sets.contains", "sets.equivalent", "sets.intersects"),
    }
)
"""Functions that look into lists within lists, or whose cost does."""

_PRIMITIVES = frozenset({bool, int, values.Uint, float, str})
_READERS = frozenset({"quantity", "semver", "ip", "cidr", "url"})
"""Functions whose value on constants is computed once. Their failure stays one of the evaluation, as in cel-go."""

_LAZY = frozenset({"or", "orValue"})
_BUILT = frozenset({"string", "bytes", "list"})
_BUILT_CLASSES = frozenset({str, bytes, tuple})
_KEYS = frozenset({bool, int, values.Uint, float, str, values.Quantity, type(None), values.Duration, values.Timestamp})


def plan_call(  # noqa: PLR0911 - one line a case
    overloads: Sequence[Overload],
    environment: environment.Environment,
    runs: Sequence[Interpretable],
    constants: Sequence[Any],
) -> Interpretable:
    """Return the closure of a call of one function."""
    first = overloads[0]
    runs = asserted(overloads, runs)
    left, right = runs[0] if runs else _nothing, runs[-1] if runs else _nothing
    if first.name in _READERS and validators.NOT_CONSTANT not in constants:
        return _read_once(overloads, constants)
    if first.name in _LAZY and first.member:
        return _lazy_or(left, right, whole=first.name == "or")
    if first.name == "_==_":
        return _equality(left, right, constants[1])
    if first.name == "_!=_":
        return _weighed_binary(first.run, left, right)
    if first.name in _SELF_JUDGING:
        return _binary(first.run, left, right)
    if first.name == "@in":
        return _membership(left, right, constants[1] if is_literal_set(overloads, constants[1]) else None)
    prepared = first.prepare(constants) if first.prepare else None
    if prepared is not None:
        return _charged(first, _guarded(first, prepared, runs))
    if first.name in _COMPARING:
        return _charged(first, _dispatched(overloads, runs, weighed=True))
    if len(overloads) == 1:
        return _charged(first, _guarded(first, first.run, runs))
    alike = [overload for overload in environment.functions[first.name] if _alike(overload, first)]
    return _charged(first, _dispatched(alike, runs))


_CRASHING: Mapping[str, tuple[int, type]] = MappingProxyType(
    {"distinct": (0, tuple), "sort": (0, tuple), "flatten": (1, int)}
)
"""Functions whose cost cel-go finds by an argument that it takes for a list or int unasked: another value, or an error,
crashes it (ext/lists.go)."""


def asserted(overloads: Sequence[Overload], runs: Sequence[Interpretable]) -> Sequence[Interpretable]:
    """Return the arguments of a call, with the one on which it may crash."""
    if len(overloads) > 1 or overloads[0].name not in _CRASHING:
        return runs
    place, kind = _CRASHING[overloads[0].name]
    return [crashing(run, kind) if at == place else run for at, run in enumerate(runs)]


def crashing(argument: Interpretable, kind: type) -> Interpretable:
    """Return an argument that must be of a kind: anything else is an error that nothing absorbs."""

    def run(activation: Activation) -> Any:
        try:
            value = argument(activation)
        except errors.AbortError:
            raise
        except errors.EvaluationError:
            raise errors.AbortError("internal error: interface conversion of an error") from None
        if type(value) is not kind:
            raise errors.AbortError(f"internal error: interface conversion: {values.type_name(value)}")
        return value

    return run


def checked_key(key: Any) -> Any:
    """Return a value as the key of a written map. Raises EvaluationError when it can be none."""
    if type(key) in _KEYS:
        return values.key_of(key)
    equality.check_hashable(key)
    raise errors.EvaluationError("unsupported key type")


def sort_by(source: Interpretable, keys: Interpretable) -> Interpretable:
    """Compile `sortBy`: the list in the order of its keys."""

    def run(activation: Activation) -> tuple[Any, ...]:
        elements = source(activation)
        return sorting.by_keys(elements, keys(activation))

    return run


def is_free(overloads: Sequence[Overload], constants: Sequence[Any]) -> bool:
    """Whether a call charges nothing of its own: `or` and `orValue`, and `in` a literal set."""
    first = overloads[0]
    if first.name == "@in":
        return is_literal_set(overloads, constants[1])
    return first.name in _LAZY and first.member


def _nothing(_: Activation) -> Any:
    raise AssertionError("a call without arguments")


def _read_once(overloads: Sequence[Overload], constants: Sequence[Any]) -> Interpretable:
    """Return what a reader of texts makes of constants, or its failure anew each time."""
    for overload in overloads:
        if _takes(overload.classes, constants):
            try:
                value = overload.run(*constants)
            except errors.EvaluationError as error:
                return _failing(type(error), str(error))
            return lambda _: value
    return _failing(errors.EvaluationError, f"no such overload: {overloads[0].name}")


def _failing(kind: type[errors.EvaluationError], message: str) -> Interpretable:
    def run(_: Activation) -> Any:
        raise kind(message)

    return run


def _alike(overload: Overload, other: Overload) -> bool:
    return overload.member is other.member and len(overload.parameters) == len(other.parameters)


def _binary(run: Implementation, left: Interpretable, right: Interpretable) -> Interpretable:
    return lambda activation: run(left(activation), right(activation))


def _weighed_binary(run: Implementation, left: Interpretable, right: Interpretable) -> Interpretable:
    """Charge comparing lists within lists, whose leaves nothing else counts."""

    def call(activation: Activation) -> Any:
        one, other = left(activation), right(activation)
        if type(one) in _BUILT_CONTAINERS and type(other) in _BUILT_CONTAINERS:
            charge_steps(activation, budget.nested_work((one, other)))
        return run(one, other)

    return call


def _equality(left: Interpretable, right: Interpretable, constant: Any) -> Interpretable:
    """Compare, at once when the left has the kind of the constant on the right."""
    kind = type(constant)
    if kind not in (str, bool, int):
        return _weighed_binary(equality.equal, left, right)

    def run(activation: Activation) -> bool:
        value = left(activation)
        if type(value) is kind:
            return bool(value == constant)
        return equality.equal(value, constant)

    return run


def is_literal_set(overloads: Sequence[Overload], constant: Any) -> bool:
    """Whether `in` asks a written list of strings, numbers or bools, of which cel-go makes a set."""
    return (
        len(overloads) == 1
        and overloads[0].parameters[1].name == "list"
        and type(constant) is tuple
        and all(type(element) in _PRIMITIVES for element in constant)
    )


def _membership(needle: Interpretable, container: Interpretable, constant: tuple[Any, ...] | None) -> Interpretable:
    if constant is None:
        return _weighed_binary(equality.contains, needle, container)
    texts = frozenset(element for element in constant if type(element) is str)

    def run(activation: Activation) -> bool:
        value = needle(activation)
        if type(value) is str:
            return value in texts
        return equality.contains_literal(value, constant)

    return run


def _lazy_or(optional: Interpretable, other: Interpretable, *, whole: bool) -> Interpretable:
    """Compile `or` (whole) and `orValue`, which give what is no optional as it is."""

    def run(activation: Activation) -> Any:
        value = optional(activation)
        if type(value) is not values.Optional:
            return value
        if value.present:
            return value if whole else value.value
        return other(activation)

    return run


def _charged(overload: Overload, call: Interpretable) -> Interpretable:
    """Charge what a function builds for its size, so that loops of builders end."""
    if overload.result.name not in _BUILT and overload.name != "_+_":
        return call

    def run(activation: Activation) -> Any:
        value = call(activation)
        if type(value) in _BUILT_CLASSES:
            activation[STEPS] -= budget.charge_size(len(value))
            if activation[STEPS] < 0:
                raise budget.exceeded()
        return value

    return run


def _guarded(overload: Overload, run: Implementation, runs: Sequence[Interpretable]) -> Interpretable:
    """Call one overload when the values are of its kinds."""
    name, classes = overload.name, overload.classes
    if len(runs) == 1 and classes[0] is not None:
        return _guarded_unary(name, run, runs[0], classes[0])
    if len(runs) == 2 and classes[0] is not None and classes[1] is not None:
        return _guarded_binary(name, run, (runs[0], classes[0]), (runs[1], classes[1]))

    def call(activation: Activation) -> Any:
        arguments = [argument(activation) for argument in runs]
        if not _takes(classes, arguments):
            raise errors.no_such_overload(name)
        return run(*arguments)

    return call


def _guarded_unary(name: str, run: Implementation, argument: Interpretable, classes: frozenset[type]) -> Interpretable:
    def call(activation: Activation) -> Any:
        value = argument(activation)
        if type(value) not in classes:
            raise errors.no_such_overload(name)
        return run(value)

    return call


def _guarded_binary(
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
    overloads: Sequence[Overload], runs: Sequence[Interpretable], *, weighed: bool = False
) -> Interpretable:
    name = overloads[0].name

    def call(activation: Activation) -> Any:
        arguments = [argument(activation) for argument in runs]
        if weighed:
            charge_steps(activation, budget.nested_work(arguments))
        for overload in overloads:
            if _takes(overload.classes, arguments):
                return overload.run(*arguments)
        raise errors.no_such_overload(name)

    return call


def _takes(classes: Sequence[frozenset[type] | None], arguments: Sequence[Any]) -> bool:
    for accepted, argument in zip(classes, arguments, strict=True):
        if accepted is not None and type(argument) not in accepted:
            return False
    return True
