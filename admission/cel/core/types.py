"""Static types, and when one may stand for another.

Kinds and their assignability follow cel-go's checker (checker/types.go, v0.26), `any` of attributes included: it is
taken for every kind by the checker, and fails at run time.
"""

from dataclasses import dataclass, field

from admission.cel.core import errors

MOST_PARTS = 1_000


@dataclass(frozen=True, slots=True)
class Kind:
    """A static type: its name and parameters. A variable stands for a type yet to be found."""

    name: str
    parameters: tuple["Kind", ...] = ()
    variable: bool = False
    text: str = field(default="", compare=False)
    size: int = field(default=1, compare=False)
    """The number of its parts, which bindings can double: bounded, since comparing two types looks at all of them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", 1 + sum(kind.size for kind in self.parameters))
        if self.size > MOST_PARTS:
            raise errors.RefusalError(-1, f"an expression's type has more than {MOST_PARTS} parts")
        inner = ", ".join(map(str, self.parameters))
        object.__setattr__(self, "text", f"{self.name}({inner})" if inner else self.name)

    def __str__(self) -> str:
        return self.text


BOOL = Kind("bool")
INT = Kind("int")
UINT = Kind("uint")
DOUBLE = Kind("double")
STRING = Kind("string")
BYTES = Kind("bytes")
NULL = Kind("null")
DURATION = Kind("duration")
TIMESTAMP = Kind("timestamp")
DYN = Kind("dyn")
ANY = Kind("any")
ERROR = Kind("!error!")
QUANTITY = Kind("kubernetes.Quantity")
SEMVER = Kind("kubernetes.Semver")
IP = Kind("net.IP")
CIDR = Kind("net.CIDR")
URL = Kind("kubernetes.URL")
NAMED_FORMAT = Kind("kubernetes.NamedFormat")
EMPTY = Kind("google.protobuf.Empty")

OPTIONAL = "optional_type"

_SCALARS = {kind.name for kind in (BOOL, INT, UINT, DOUBLE, STRING, BYTES)}


def list_of(element: Kind) -> Kind:
    return Kind("list", (element,))


def map_of(key: Kind, value: Kind) -> Kind:
    return Kind("map", (key, value))


def optional_of(value: Kind) -> Kind:
    return Kind(OPTIONAL, (value,))


def wrapper_of(kind: Kind) -> Kind:
    """Return the type of a scalar that may be null."""
    return Kind("wrapper", (kind,))


def type_of(kind: Kind) -> Kind:
    return Kind("type", (kind,))


def is_dynamic(kind: Kind) -> bool:
    return kind.name in ("dyn", "any")


def unwrapped(kind: Kind) -> tuple[Kind, bool]:
    """Return the kind within an optional, and whether it was one."""
    return (kind.parameters[0], True) if kind.name == OPTIONAL else (kind, False)


class Unifier:
    """The kinds found for variables so far. A failed attempt leaves no trace."""

    def __init__(self) -> None:
        self._found: dict[str, Kind] = {}
        self._trail: list[tuple[str, Kind | None]] = []
        self._count = 0

    def fresh(self) -> Kind:
        """Return a new variable."""
        self._count += 1
        return Kind(f"_var{self._count}", variable=True)

    def assignable(self, kind: Kind, target: Kind) -> bool:
        """Whether the kind may stand where the target is wanted; remembers what that says of variables."""
        return self.all_assignable((kind,), (target,))

    def all_assignable(self, given: tuple[Kind, ...], wanted: tuple[Kind, ...]) -> bool:
        self._trail.clear()
        if len(given) == len(wanted) and all(map(self._assignable, given, wanted)):
            return True
        for name, before in reversed(self._trail):
            if before is None:
                del self._found[name]
            else:
                self._found[name] = before
        return False

    def resolved(self, kind: Kind, *, to_dynamic: bool = False) -> Kind:
        """Return the kind with its variables replaced by what was found for them, or by dyn where nothing was."""
        while kind.variable:
            if kind.name not in self._found:
                return DYN if to_dynamic else kind
            kind = self._found[kind.name]
        if not kind.parameters:
            return kind
        return Kind(kind.name, tuple(self.resolved(inner, to_dynamic=to_dynamic) for inner in kind.parameters))

    def _assignable(self, given: Kind, wanted: Kind) -> bool:  # noqa: PLR0911 - ordered rules, as in cel-go
        if wanted.variable:
            valid, known = self._substitutes(given, wanted)
            if valid or known:
                return valid
        if given.variable:
            return self._substitutes(wanted, given)[0]
        if is_dynamic(given) or is_dynamic(wanted) or ERROR in (given, wanted):
            return True
        if "wrapper" in (given.name, wanted.name):
            return self._assignable_wrapper(given, wanted)
        if NULL in (given, wanted):
            other = wanted if given == NULL else given
            return other.name not in _SCALARS and other.name not in ("list", "map", "type")
        if given.name != wanted.name:
            return False
        if given.name == "type":
            return True
        return all(map(self._assignable, given.parameters, wanted.parameters))

    def _assignable_wrapper(self, given: Kind, wanted: Kind) -> bool:
        if NULL in (given, wanted):
            return True
        one, other = (kind.parameters[0] if kind.name == "wrapper" else kind for kind in (given, wanted))
        return self._assignable(one, other)

    def _substitutes(self, kind: Kind, variable: Kind) -> tuple[bool, bool]:
        """Whether the kind fits the variable, and whether something was known of it."""
        if kind == variable:
            return True, True
        found = self._found.get(variable.name)
        if found is None:
            if self._occurs(variable, kind):
                return False, False
            self._remember(variable.name, kind)
            return True, False
        if kind == found:
            return True, True
        if not self._assignable(kind, found):
            return False, True
        general = most_general(kind, found)
        if not self._occurs(variable, general):
            self._remember(variable.name, general)
        return True, True

    def _remember(self, name: str, kind: Kind) -> None:
        self._trail.append((name, self._found.get(name)))
        self._found[name] = kind

    def _occurs(self, variable: Kind, within: Kind) -> bool:
        if within == variable:
            return True
        if within.variable:
            found = self._found.get(within.name)
            return found is not None and self._occurs(variable, found)
        return any(self._occurs(variable, inner) for inner in within.parameters)


def most_general(first: Kind, second: Kind) -> Kind:
    """Return the less specific of two kinds that unify."""
    return first if _less_specific(first, second) else second


def _less_specific(first: Kind, second: Kind) -> bool:
    if is_dynamic(first) or first.variable:
        return True
    if is_dynamic(second) or second.variable or first.name != second.name:
        return False
    if first.name == "type":
        return True
    return len(first.parameters) == len(second.parameters) and all(
        map(_less_specific, first.parameters, second.parameters)
    )
