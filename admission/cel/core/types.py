"""Static types and their assignability.

They follow cel-go's checker (checker/types.go, v0.26), including the `any` of attributes: the checker accepts it for
every type, and it may fail at run time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from admission.cel.core import errors

MAX_PARTS = 1_000

MAX_STEPS = 20_000
"""Parts of types that are visited while one expression is checked. Usual ones have some ten for each of their calls."""


@dataclass(frozen=True, slots=True)
class Type:
    """A static type: its name and parameters. A variable stands for a type that is not inferred yet."""

    name: str
    parameters: tuple["Type", ...] = ()
    variable: bool = False
    size: int = field(default=1, compare=False)
    """The number of its parts. Bounded, since each binding can double it and a comparison of types visits all parts."""
    ground: bool = field(default=True, compare=False)
    """Whether no part is a variable, so that nothing is left to infer."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", 1 + sum(type_.size for type_ in self.parameters))
        if self.size > MAX_PARTS:
            raise errors.RefusalError(-1, f"an expression's type has more than {MAX_PARTS} parts")
        object.__setattr__(self, "ground", not self.variable and all(type_.ground for type_ in self.parameters))

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.parameters))})" if self.parameters else self.name


BOOL = Type("bool")
INT = Type("int")
UINT = Type("uint")
DOUBLE = Type("double")
STRING = Type("string")
BYTES = Type("bytes")
NULL = Type("null")
DURATION = Type("duration")
TIMESTAMP = Type("timestamp")
DYN = Type("dyn")
ANY = Type("any")
ERROR = Type("!error!")
QUANTITY = Type("kubernetes.Quantity")
SEMVER = Type("kubernetes.Semver")
IP = Type("net.IP")
CIDR = Type("net.CIDR")
URL = Type("kubernetes.URL")
NAMED_FORMAT = Type("kubernetes.NamedFormat")
EMPTY = Type("google.protobuf.Empty")

OPTIONAL = "optional_type"

_SCALARS = {type_.name for type_ in (BOOL, INT, UINT, DOUBLE, STRING, BYTES)}


def list_of(element: Type) -> Type:
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    return Type(OPTIONAL, (value,))


def wrapper_of(type_: Type) -> Type:
    """Return the type of a scalar that may be null."""
    return Type("wrapper", (type_,))


def type_of(type_: Type) -> Type:
    return Type("type", (type_,))


def is_dynamic(type_: Type) -> bool:
    return type_.name in ("dyn", "any")


def unwrapped(type_: Type) -> tuple[Type, bool]:
    """Return the type within an optional, and whether it was one."""
    return (type_.parameters[0], True) if type_.name == OPTIONAL else (type_, False)


class Unifier:
    """The types inferred for variables so far. A failed attempt changes nothing."""

    def __init__(self) -> None:
        self._found: dict[str, Type] = {}
        self._trail: list[tuple[str, Type | None]] = []
        self._count = 0
        self._steps = 0

    def fresh(self) -> Type:
        """Return a new variable."""
        self._count += 1
        return Type(f"_var{self._count}", variable=True)

    def assignable(self, type_: Type, target: Type) -> bool:
        """Whether a type is assignable to the target. Records what that implies for variables."""
        return self.all_assignable((type_,), (target,))

    def all_assignable(self, given: tuple[Type, ...], targets: tuple[Type, ...]) -> bool:
        self._trail.clear()
        if len(given) == len(targets) and all(map(self._assignable, given, targets)):
            return True
        for name, before in reversed(self._trail):
            if before is None:
                del self._found[name]
            else:
                self._found[name] = before
        return False

    def resolved(self, type_: Type, *, to_dynamic: bool = False) -> Type:
        """Return the type with its variables replaced by what is inferred for them. to_dynamic: or by dyn."""
        return self._resolved(type_, {}, to_dynamic=to_dynamic)

    def all_resolved(self, types: Mapping[int, Type]) -> dict[int, Type]:
        """Return the types by the same keys, with all variables replaced. Types that share parts are resolved once."""
        known: dict[int, Type] = {}
        return {key: self._resolved(type_, known, to_dynamic=True) for key, type_ in types.items()}

    def _resolved(self, type_: Type, known: dict[int, Type], *, to_dynamic: bool) -> Type:
        """known: the resolved types, by the `id` of those that they were made from, which others keep alive."""
        while type_.variable:
            if type_.name not in self._found:
                return DYN if to_dynamic else type_
            type_ = self._found[type_.name]
        if type_.ground:
            return type_
        found = known.get(id(type_))
        if found is None:
            self._step()
            inner = tuple([self._resolved(part, known, to_dynamic=to_dynamic) for part in type_.parameters])
            found = known[id(type_)] = Type(type_.name, inner)
        return found

    def _step(self) -> None:
        """Count a part of a type that is visited. Raises RefusalError if an expression's types take too many."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise errors.RefusalError(-1, "an expression's types are too deep to be compared so often")

    def _assignable(self, given: Type, target: Type) -> bool:  # noqa: PLR0911 - ordered rules, as in cel-go
        if given is target:
            return True
        self._step()
        if target.variable:
            valid, known = self._substitutes(given, target)
            if valid or known:
                return valid
        if given.variable:
            return self._substitutes(target, given)[0]
        if is_dynamic(given) or is_dynamic(target) or ERROR in (given, target):
            return True
        if "wrapper" in (given.name, target.name):
            return self._assignable_wrapper(given, target)
        if NULL in (given, target):
            other = target if given == NULL else given
            return other.name not in _SCALARS and other.name not in ("list", "map", "type")
        if given.name != target.name:
            return False
        if given.name == "type":
            return True
        return all(map(self._assignable, given.parameters, target.parameters))

    def _assignable_wrapper(self, given: Type, target: Type) -> bool:
        if NULL in (given, target):
            return True
        one, other = (type_.parameters[0] if type_.name == "wrapper" else type_ for type_ in (given, target))
        return self._assignable(one, other)

    def _substitutes(self, type_: Type, variable: Type) -> tuple[bool, bool]:
        """Whether the type fits the variable, and whether the variable was already bound."""
        if type_ == variable:
            return True, True
        found = self._found.get(variable.name)
        if found is None:
            if self._occurs(variable, type_):
                return False, False
            self._bind(variable.name, type_)
            return True, False
        if type_ == found:
            return True, True
        if not self._assignable(type_, found):
            return False, True
        general = most_general(type_, found)
        if not self._occurs(variable, general):
            self._bind(variable.name, general)
        return True, True

    def _bind(self, name: str, type_: Type) -> None:
        self._trail.append((name, self._found.get(name)))
        self._found[name] = type_

    def _occurs(self, variable: Type, within: Type) -> bool:
        if within.ground:
            return False
        self._step()
        if within == variable:
            return True
        if within.variable:
            found = self._found.get(within.name)
            return found is not None and self._occurs(variable, found)
        return any(self._occurs(variable, inner) for inner in within.parameters)


def most_general(first: Type, second: Type) -> Type:
    """Return the less specific of two types that unify."""
    return first if _less_specific(first, second) else second


def _less_specific(first: Type, second: Type) -> bool:
    if is_dynamic(first) or first.variable:
        return True
    if is_dynamic(second) or second.variable or first.name != second.name:
        return False
    if first.name == "type":
        return True
    return len(first.parameters) == len(second.parameters) and all(
        map(_less_specific, first.parameters, second.parameters)
    )
