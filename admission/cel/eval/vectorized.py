"""The fast tier: a selector as one generated loop over the devices of a slice, read as the API gives them.

Only what is often written is generated: reading attributes and capacities by name, comparing, logic, `in` a written
list, texts, versions, amounts. The rest has no sweep. A sweep never answers where the exact tier would fail or might
answer otherwise: it leaves the device in doubt, and the exact tier decides. That is sound because texts are pure.

Of the user's text nothing enters the generated source: its literals and names stand in a table.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

from admission.api.kubernetes.devices import Device, Version
from admission.cel.check import type_checker
from admission.cel.core import ast, errors
from admission.cel.eval.parse_cache import ParseCache, TextCache
from admission.cel.library import quantities, regex, semver, strings

MAX_NODES = 300
"""Larger texts have no sweep: Python's own compiler would take long, or refuse their nesting."""

Bits = int
Loop = Callable[[Sequence[Device], str, tuple[Any, ...]], tuple[Bits, Bits]]


class NotVectorizableError(Exception):
    """Raised within a sweep: the exact tier has to decide."""


class Unsupported(Exception):  # noqa: N818 - caught where a sweep is made, never shown
    """Raised while a sweep is written: there is none for the text."""


class VectorProgram(NamedTuple):
    """A generated loop. paths: domain and name of what it reads, in the order of its keys."""

    loop: Loop
    paths: tuple[tuple[str, str], ...]

    def over(self, devices: Sequence[Device], driver: str) -> tuple[Bits, Bits]:
        """Return the devices on which the text holds, and those in doubt. What is said of unreadable ones is void."""
        keys = (key for domain, name in self.paths for key in _keys(domain, name, driver))
        return self.loop(devices, driver, tuple(keys))


def _keys(domain: str, name: str, driver: str) -> tuple[str | None, str | None]:
    """Return how a device of the driver writes a name, and how it writes it in another way; None is written nowhere."""
    qualified = None if "/" in domain else f"{domain}/{name}"
    if domain == driver and "/" not in name:
        return name, qualified
    return qualified, None


def write(root: ast.Node, checked: type_checker.CheckedAst, parse_cache: ParseCache) -> VectorProgram | None:
    """Return the sweep of a text, or None if it has none."""
    if sum(1 for _ in _all(root)) > MAX_NODES:
        return None
    writer = _Writer(checked, parse_cache)
    try:
        body = writer.truth(writer.piece(root, {"device": _Path()}))
        source = _TEMPLATE.format(keys=writer.keys(), guard=writer.guard(), body=body)
        exec(compile(source, "<vectorized>", "exec"), writer.table)  # noqa: S102
    except (Unsupported, errors.EvaluationError, SyntaxError, RecursionError, MemoryError):
        return None
    return VectorProgram(writer.table["run"], tuple((domain, name) for _, domain, name in writer.paths))


_TEMPLATE = """
def run(devices, driver, keys):
    {keys}
    yes = undecided = 0
    bit = 1
    for device in devices:
        A = device.attributes
        try:
            {guard}
            if {body}:
                yes |= bit
        except Exception:
            undecided |= bit
        bit <<= 1
    return yes, undecided
"""


def _all(root: ast.Node) -> list[ast.Node]:
    found = [root]
    for node in found:
        found.extend(ast.children(node))
        if len(found) > MAX_NODES:
            break
    return found


class _Tag(Enum):
    """What the value of a piece of source is known to be."""

    ANY = auto()
    """A string, an int, a bool, a version or a list: an attribute."""
    BOOL = auto()
    STR = auto()
    INT = auto()
    AMOUNT = auto()
    """A quantity, as its units of 10⁻⁹."""
    VERSION = auto()
    """A version, as what orders it."""


class _Piece(NamedTuple):
    source: str
    tag: _Tag


class _Path(NamedTuple):
    """Where in a device a chain of names leads: the device, one of its maps, a domain of it, a value."""

    field: str = ""
    domain: str | None = None
    name: str | None = None
    optional: bool = False


Names = Mapping[str, _Path]

_CLASSES = {_Tag.STR: "str", _Tag.INT: "int", _Tag.BOOL: "bool"}
_ORDERINGS = {"_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}
_TEXT_TESTS = {"startsWith": "{0}.startswith({1})", "endsWith": "{0}.endswith({1})", "contains": "({1} in {0})"}


def _further(path: _Path, step: str, *, optional: bool) -> _Path | None:
    """Return where the next name leads, None when it leads out of the device."""
    if not path.field:
        return None if optional else path._replace(field=step)
    if path.field not in ("attributes", "capacity") or path.name is not None:
        return None
    optional = optional or path.optional
    if path.domain is None:
        return path._replace(domain=step, optional=optional)
    return path._replace(name=step, optional=optional)


def _searcher(pattern: str, *, whether: bool) -> Callable[[str], Any]:
    compiled = regex.compile_pattern(pattern)
    if whether:
        return lambda text: compiled.search(text) is not None
    return lambda text: regex.find(text, compiled)


def _fall_back(_: object = None) -> Any:
    raise NotVectorizableError


def _is_unequal(value: object) -> bool:
    """Whether an attribute of another kind than a scalar is unequal to it, rather than failing on the left of `==`."""
    if value.__class__ is Version:
        raise NotVectorizableError
    return False


def _equal(left: object, right: object) -> bool:
    if left.__class__ not in _SCALARS or right.__class__ not in _SCALARS:
        raise NotVectorizableError
    return left.__class__ is right.__class__ and left == right


_SCALARS = frozenset({str, int, bool})


class _Writer:
    def __init__(self, checked: type_checker.CheckedAst, parse_cache: ParseCache) -> None:
        self.checked = checked
        self.parse_cache = parse_cache
        self.paths: list[tuple[str, str, str]] = []
        self.variables = 0
        self.table: dict[str, Any] = {
            "fall_back": _fall_back,
            "is_unequal": _is_unequal,
            "equal": _equal,
            "Version": Version,
            "amounts": parse_cache.amounts,
            "versions": parse_cache.versions,
        }

    def keys(self) -> str:
        names = "".join(f"K{place}, O{place}, " for place in range(len(self.paths)))
        return f"{names}= keys" if names else "pass"

    def guard(self) -> str:
        """Leave a device in doubt that writes a name with its driver's domain: it may write it without, too."""
        tests = [
            f"O{place} in {'device.capacity' if field == 'capacity' else 'A'}"
            for place, (field, _, _) in enumerate(self.paths)
        ]
        return f"if {' or '.join(tests)}: fall_back()" if tests else "pass"

    def constant(self, value: Any) -> str:
        name = f"C{len(self.table)}"
        self.table[name] = value
        return name

    def variable(self) -> str:
        self.variables += 1
        return f"v{self.variables}"

    def key(self, path: _Path) -> str:
        assert path.domain is not None  # noqa: S101 - a value's path has both
        assert path.name is not None  # noqa: S101
        place = (path.field, path.domain, path.name)
        if place not in self.paths:
            self.paths.append(place)
        return f"K{self.paths.index(place)}"

    def piece(self, node: ast.Node, names: Names) -> _Piece:  # noqa: PLR0911 - one line a node
        path = self.path(node, names)
        if path is not None:
            return self.read(path)
        match node:
            case ast.Literal(value=bool() | str() | int()):
                return self.literal(node.value)
            case ast.Logic():
                terms = [self.truth(self.piece(term, names)) for term in node.terms]
                return _Piece(f"({(' and ' if node.conjunction else ' or ').join(terms)})", _Tag.BOOL)
            case ast.Conditional():
                return self.conditional(node, names)
            case ast.Has():
                return self.has(node, names)
            case ast.Bind():
                value = self.path(node.value, names)
                if value is None:
                    raise Unsupported
                return self.piece(node.body, {**names, node.name: value})
            case ast.Call():
                return self.call(node, names)
            case _:
                raise Unsupported

    def literal(self, value: Any) -> _Piece:
        tags = {bool: _Tag.BOOL, str: _Tag.STR, int: _Tag.INT}
        if type(value) not in tags:
            raise Unsupported
        return _Piece(self.constant(value), tags[type(value)])

    def path(self, node: ast.Node, names: Names) -> _Path | None:
        """Return where a chain of names leads, None when the node is none."""
        match node:
            case ast.Identifier():
                return names.get(node.name)
            case ast.Select() if id(node) not in self.checked.type_names:
                step, optional = node.field, node.optional
            case ast.Index(key=ast.Literal(value=str() as step)):
                optional = node.optional
            case _:
                return None
        operand = self.path(node.operand, names)
        return None if operand is None else _further(operand, step, optional=optional)

    def read(self, path: _Path) -> _Piece:
        """Return the source of a path's value; of an optional one, see `call`."""
        if path.optional:
            raise Unsupported
        if path.field == "driver":
            return _Piece("driver", _Tag.STR)
        if path.field == "allowMultipleAllocations":
            return _Piece("device.allows_multiple", _Tag.BOOL)
        if path.name is None:
            raise Unsupported
        if path.field == "capacity":
            return _Piece(f"amounts[device.capacity[{self.key(path)}].text].nanos", _Tag.AMOUNT)
        return _Piece(f"A[{self.key(path)}]", _Tag.ANY)

    def is_there(self, path: _Path) -> str:
        if path.domain is None:
            raise Unsupported
        if path.name is None:
            return "True"
        return f"({self.key(path)} in {'device.capacity' if path.field == 'capacity' else 'A'})"

    def has(self, node: ast.Has, names: Names) -> _Piece:
        operand = self.path(node.operand, names)
        if operand is None or operand.field not in ("attributes", "capacity") or operand.name is not None:
            raise Unsupported
        target = _further(operand, node.field, optional=False)
        if target is None:
            raise Unsupported
        return _Piece(self.is_there(target), _Tag.BOOL)

    def conditional(self, node: ast.Conditional, names: Names) -> _Piece:
        condition = self.truth(self.piece(node.condition, names))
        return self.either(self.piece(node.then, names), condition, self.piece(node.otherwise, names))

    def either(self, then: _Piece, condition: str, otherwise: _Piece) -> _Piece:
        tag = then.tag if then.tag is otherwise.tag else _Tag.ANY
        if {_Tag.AMOUNT, _Tag.VERSION} & {then.tag, otherwise.tag} and tag is _Tag.ANY:
            raise Unsupported
        return _Piece(f"({then.source} if {condition} else {otherwise.source})", tag)

    def truth(self, piece: _Piece) -> str:
        return self.checked_as(piece, _Tag.BOOL)

    def checked_as(self, piece: _Piece, tag: _Tag) -> str:
        """Return source whose value is surely of a kind."""
        if piece.tag is tag:
            return piece.source
        if piece.tag is not _Tag.ANY:
            raise Unsupported
        value = self.variable()
        if tag is _Tag.VERSION:
            return f"(versions[{value}].order if ({value} := {piece.source}).__class__ is Version else fall_back())"
        if tag not in _CLASSES:
            raise Unsupported
        return f"({value} if ({value} := {piece.source}).__class__ is {_CLASSES[tag]} else fall_back())"

    def call(self, node: ast.Call, names: Names) -> _Piece:  # noqa: C901, PLR0911 - one line a group of functions
        given = list(node.arguments)
        if id(node) in self.checked.namespaced:
            raise Unsupported
        if node.receiver is not None:
            given.insert(0, node.receiver)
        match node.function:
            case "!_":
                return _Piece(f"(not {self.truth(self.piece(given[0], names))})", _Tag.BOOL)
            case "_==_" | "_!=_":
                pieces = [self.piece(part, names) for part in given]
                return self.equality(pieces[0], pieces[1], negated=node.function == "_!=_")
            case "_<_" | "_<=_" | "_>_" | "_>=_":
                left, right = (self.piece(part, names) for part in given)
                return self.ordering(left, right, _ORDERINGS[node.function])
            case "@in":
                return self.membership(given[0], given[1], names)
            case "quantity" | "semver":
                return self.constant_of(node)
            case "hasValue" | "orValue" | "value":
                return self.optional(node.function, given, names)
            case "compareTo" | "isGreaterThan" | "isLessThan":
                return self.comparison(node.function, *(self.piece(part, names) for part in given))
            case "matches" | "find" | "startsWith" | "endsWith" | "contains" | "size" | "lowerAscii" | "upperAscii":
                return self.text(node.function, given, names)
            case _:
                raise Unsupported

    def equality(self, left: _Piece, right: _Piece, *, negated: bool) -> _Piece:
        operator = "!=" if negated else "=="
        if left.tag is not _Tag.ANY and left.tag is right.tag:
            return _Piece(f"({left.source} {operator} {right.source})", _Tag.BOOL)
        if left.tag is right.tag:
            source = f"equal({left.source}, {right.source})"
            return _Piece(f"(not {source})" if negated else source, _Tag.BOOL)
        if _Tag.ANY not in (left.tag, right.tag):
            raise Unsupported
        attribute, other = (left, right) if left.tag is _Tag.ANY else (right, left)
        value = self.variable()
        if other.tag is _Tag.VERSION:
            same = f"versions[{value}].order {operator} {other.source}"
            unlike = str(negated) if negated or attribute is left else "fall_back()"
            source = f"({same} if ({value} := {attribute.source}).__class__ is Version else {unlike})"
        elif other.tag in _CLASSES:
            # A version fails on the left of `==`, is unequal on the right, and for `!=` on either side.
            unlike = "True" if negated else f"is_unequal({value})" if attribute is left else "False"
            same = f"{value} {operator} {other.source}"
            source = f"({same} if ({value} := {attribute.source}).__class__ is {_CLASSES[other.tag]} else {unlike})"
        else:
            raise Unsupported
        return _Piece(source, _Tag.BOOL)

    def ordering(self, left: _Piece, right: _Piece, operator: str) -> _Piece:
        tag = right.tag if left.tag is _Tag.ANY else left.tag
        if tag not in (_Tag.STR, _Tag.INT):
            raise Unsupported
        return _Piece(f"({self.checked_as(left, tag)} {operator} {self.checked_as(right, tag)})", _Tag.BOOL)

    def membership(self, needle: ast.Node, container: ast.Node, names: Names) -> _Piece:
        path = self.path(container, names)
        if path is not None and isinstance(needle, ast.Literal) and isinstance(needle.value, str):
            if path.domain is None or path.name is not None or path.optional:
                raise Unsupported
            return _Piece(self.is_there(path._replace(name=needle.value)), _Tag.BOOL)
        if not isinstance(container, ast.ListLiteral) or not container.elements:
            raise Unsupported
        elements = [entry.value.value for entry in container.elements if isinstance(entry.value, ast.Literal)]
        kind = type(elements[0]) if elements else None
        tags: dict[type | None, _Tag] = {str: _Tag.STR, int: _Tag.INT}
        if kind not in tags or len(elements) < len(container.elements) or {type(e) for e in elements} != {kind}:
            raise Unsupported
        found, value = self.piece(needle, names), self.variable()
        members = self.constant(frozenset(elements))
        if found.tag is tags[kind]:
            return _Piece(f"({found.source} in {members})", _Tag.BOOL)
        if found.tag is not _Tag.ANY:
            raise Unsupported
        like = f"({value} := {found.source}).__class__ is {_CLASSES[tags[kind]]}"
        return _Piece(f"({value} in {members} if {like} else is_unequal({value}))", _Tag.BOOL)

    def constant_of(self, node: ast.Call) -> _Piece:
        """Read an amount or a version that is written out."""
        arguments = [part.value for part in node.arguments if isinstance(part, ast.Literal)]
        if len(arguments) < len(node.arguments) or node.receiver is not None or type(arguments[0]) is not str:
            raise Unsupported
        if node.function == "quantity":
            return _Piece(self.constant(quantities.parse(arguments[0]).nanos), _Tag.AMOUNT)
        tolerant = len(arguments) > 1 and arguments[1] is True
        return _Piece(self.constant(semver.parse_tolerant(arguments[0], tolerant).order), _Tag.VERSION)

    def optional(self, function: str, given: Sequence[ast.Node], names: Names) -> _Piece:
        path = self.path(given[0], names)
        if path is None or not path.optional or path.name is None:
            raise Unsupported
        present = self.is_there(path)
        if function == "hasValue":
            return _Piece(present, _Tag.BOOL)
        value = self.read(path._replace(optional=False))
        if function == "value":
            return value
        return self.either(value, present, self.piece(given[1], names))

    def comparison(self, function: str, left: _Piece, right: _Piece) -> _Piece:
        """Compare amounts, which all capacities are, or versions."""
        tag = left.tag if left.tag is not _Tag.ANY else right.tag
        if tag is _Tag.AMOUNT and left.tag is not right.tag:
            raise Unsupported
        tag = _Tag.VERSION if tag is _Tag.ANY else tag
        one, other = self.checked_as(left, tag), self.checked_as(right, tag)
        if function != "compareTo":
            return _Piece(f"({one} {'>' if function == 'isGreaterThan' else '<'} {other})", _Tag.BOOL)
        first, second = self.variable(), self.variable()
        greater = f"(({first} := {one}) > ({second} := {other}))"
        return _Piece(f"({greater} - ({first} < {second}))", _Tag.INT)

    def text(self, function: str, given: Sequence[ast.Node], names: Names) -> _Piece:
        target = self.checked_as(self.piece(given[0], names), _Tag.STR)
        if function in _TEXT_TESTS:
            part = self.checked_as(self.piece(given[1], names), _Tag.STR)
            return _Piece(_TEXT_TESTS[function].format(target, part), _Tag.BOOL)
        if function == "size":
            return _Piece(f"len({target})", _Tag.INT)
        if function in ("lowerAscii", "upperAscii"):
            run = strings.lower_ascii if function == "lowerAscii" else strings.upper_ascii
            return _Piece(f"{self.constant(run)}({target})", _Tag.STR)
        pattern = given[1]
        if not isinstance(pattern, ast.Literal) or type(pattern.value) is not str:
            raise Unsupported
        remembered = self.constant(TextCache(_searcher(pattern.value, whether=function == "matches")))
        return _Piece(f"{remembered}[{target}]", _Tag.BOOL if function == "matches" else _Tag.STR)
