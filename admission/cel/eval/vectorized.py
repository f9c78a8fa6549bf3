"""Vectorized evaluation: a selector as one generated loop over the devices of a slice, in the form of the API.

Only common forms are generated: attributes and capacities by name, comparisons, logic, `in` a literal list, strings,
versions, quantities. Other expressions have no vector program. Where the interpreter would fail, or might differ, the
loop leaves the device undecided, and the interpreter evaluates it. This is sound because expressions are pure.

No part of the user's expression enters the generated source: its literals and names are in a table.
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
"""Larger expressions are not vectorized: Python's compiler would take long, or reject their nesting."""

Bits = int
Loop = Callable[[Sequence[Device], str, tuple[Any, ...]], tuple[Bits, Bits]]


class NotVectorizableError(Exception):
    """Raised within a generated loop: the interpreter has to evaluate the device."""


class Unsupported(Exception):  # noqa: N818 - caught in `compile_loop`, never shown
    """Raised while a loop is generated: the expression is not vectorizable."""


class VectorProgram(NamedTuple):
    """A generated loop. paths: the domains and names that it reads, in the order of its keys."""

    loop: Loop
    paths: tuple[tuple[str, str], ...]

    def over(self, devices: Sequence[Device], driver: str) -> tuple[Bits, Bits]:
        """Return the devices on which the selector is true, and the undecided ones. Bits of unreadable ones are void."""
        keys = (key for domain, name in self.paths for key in _keys(domain, name, driver))
        return self.loop(devices, driver, tuple(keys))


def _keys(domain: str, name: str, driver: str) -> tuple[str | None, str | None]:
    """Return a name's key in devices of the driver, and its other notation; None is in no device."""
    qualified = None if "/" in domain else f"{domain}/{name}"
    if domain == driver and "/" not in name:
        return name, qualified
    return qualified, None


def compile_loop(root: ast.Node, checked: type_checker.CheckedAst, parse_cache: ParseCache) -> VectorProgram | None:
    """Return an expression's vector program, or None if it is not vectorizable."""
    if sum(1 for _ in _nodes(root)) > MAX_NODES:
        return None
    generator = _Generator(checked, parse_cache)
    try:
        body = generator.truth(generator.piece(root, {"device": _Path()}))
        source = _TEMPLATE.format(keys=generator.keys(), guard=generator.guard(), body=body)
        exec(compile(source, "<vectorized>", "exec"), generator.table)  # noqa: S102
    except (Unsupported, errors.EvaluationError, SyntaxError, RecursionError, MemoryError):
        return None
    return VectorProgram(generator.table["run"], tuple((domain, name) for _, domain, name in generator.paths))


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


def _nodes(root: ast.Node) -> list[ast.Node]:
    found = [root]
    for node in found:
        found.extend(ast.children(node))
        if len(found) > MAX_NODES:
            break
    return found


class _Tag(Enum):
    """The static type of a generated expression."""

    ANY = auto()
    """A string, an int, a bool, a version or a list: an attribute."""
    BOOL = auto()
    STR = auto()
    INT = auto()
    AMOUNT = auto()
    """A quantity, in units of 10⁻⁹."""
    VERSION = auto()
    """A version, as its sort key."""


class _Code(NamedTuple):
    source: str
    tag: _Tag


class _Path(NamedTuple):
    """The path of a chain of selections within a device: the device, one of its maps, a domain of it, or a value."""

    field: str = ""
    domain: str | None = None
    name: str | None = None
    optional: bool = False


Names = Mapping[str, _Path]

_CLASSES = {_Tag.STR: "str", _Tag.INT: "int", _Tag.BOOL: "bool"}
_ORDERINGS = {"_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}
_TEXT_TESTS = {"startsWith": "{0}.startswith({1})", "endsWith": "{0}.endswith({1})", "contains": "({1} in {0})"}


def _extended(path: _Path, step: str, *, optional: bool) -> _Path | None:
    """Return the path after a further selection, None if it is not one within the device."""
    if not path.field:
        return None if optional else path._replace(field=step)
    if path.field not in ("attributes", "capacity") or path.name is not None:
        return None
    optional = optional or path.optional
    if path.domain is None:
        return path._replace(domain=step, optional=optional)
    return path._replace(name=step, optional=optional)


def _pattern_search(pattern: str, *, tests_only: bool) -> Callable[[str], Any]:
    compiled = regex.compile_pattern(pattern)
    if tests_only:
        return lambda text: compiled.search(text) is not None
    return lambda text: regex.find(text, compiled)


def _fall_back(_: object = None) -> Any:
    raise NotVectorizableError


def _equals_other_type(value: object) -> bool:
    """Return whether a scalar on the right equals an attribute of another type: it does not, but a version fails."""
    if value.__class__ is Version:
        raise NotVectorizableError
    return False


def _equal(left: object, right: object) -> bool:
    if left.__class__ not in _SCALARS or right.__class__ not in _SCALARS:
        raise NotVectorizableError
    return left.__class__ is right.__class__ and left == right


_SCALARS = frozenset({str, int, bool})


class _Generator:
    def __init__(self, checked: type_checker.CheckedAst, parse_cache: ParseCache) -> None:
        self.checked = checked
        self.parse_cache = parse_cache
        self.paths: list[tuple[str, str, str]] = []
        self.variables = 0
        self.table: dict[str, Any] = {
            "fall_back": _fall_back,
            "equals_other_type": _equals_other_type,
            "equal": _equal,
            "Version": Version,
            "amounts": parse_cache.amounts,
            "versions": parse_cache.versions,
        }

    def keys(self) -> str:
        names = "".join(f"K{place}, O{place}, " for place in range(len(self.paths)))
        return f"{names}= keys" if names else "pass"

    def guard(self) -> str:
        """Leave a device undecided that qualifies a name by its driver's domain: it may have the plain name, too."""
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
        assert path.domain is not None  # noqa: S101 - the path of a value has both
        assert path.name is not None  # noqa: S101
        place = (path.field, path.domain, path.name)
        if place not in self.paths:
            self.paths.append(place)
        return f"K{self.paths.index(place)}"

    def piece(self, node: ast.Node, names: Names) -> _Code:  # noqa: PLR0911 - one line a node
        path = self.path(node, names)
        if path is not None:
            return self.read(path)
        match node:
            case ast.Literal(value=bool() | str() | int()):
                return self.literal(node.value)
            case ast.Logic():
                terms = [self.truth(self.piece(term, names)) for term in node.terms]
                return _Code(f"({(' and ' if node.conjunction else ' or ').join(terms)})", _Tag.BOOL)
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

    def literal(self, value: Any) -> _Code:
        tags = {bool: _Tag.BOOL, str: _Tag.STR, int: _Tag.INT}
        if type(value) not in tags:
            raise Unsupported
        return _Code(self.constant(value), tags[type(value)])

    def path(self, node: ast.Node, names: Names) -> _Path | None:
        """Return the path of a chain of selections, None if the node is none."""
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
        return None if operand is None else _extended(operand, step, optional=optional)

    def read(self, path: _Path) -> _Code:
        """Generate the read of a path's value. For an optional one, see `call`."""
        if path.optional:
            raise Unsupported
        if path.field == "driver":
            return _Code("driver", _Tag.STR)
        if path.field == "allowMultipleAllocations":
            return _Code("device.allows_multiple", _Tag.BOOL)
        if path.name is None:
            raise Unsupported
        if path.field == "capacity":
            return _Code(f"amounts[device.capacity[{self.key(path)}].text].nanos", _Tag.AMOUNT)
        return _Code(f"A[{self.key(path)}]", _Tag.ANY)

    def presence(self, path: _Path) -> str:
        if path.domain is None:
            raise Unsupported
        if path.name is None:
            return "True"
        return f"({self.key(path)} in {'device.capacity' if path.field == 'capacity' else 'A'})"

    def has(self, node: ast.Has, names: Names) -> _Code:
        operand = self.path(node.operand, names)
        if operand is None or operand.field not in ("attributes", "capacity") or operand.name is not None:
            raise Unsupported
        target = _extended(operand, node.field, optional=False)
        if target is None:
            raise Unsupported
        return _Code(self.presence(target), _Tag.BOOL)

    def conditional(self, node: ast.Conditional, names: Names) -> _Code:
        condition = self.truth(self.piece(node.condition, names))
        return self.if_else(self.piece(node.then, names), condition, self.piece(node.otherwise, names))

    def if_else(self, then: _Code, condition: str, otherwise: _Code) -> _Code:
        tag = then.tag if then.tag is otherwise.tag else _Tag.ANY
        if {_Tag.AMOUNT, _Tag.VERSION} & {then.tag, otherwise.tag} and tag is _Tag.ANY:
            raise Unsupported
        return _Code(f"({then.source} if {condition} else {otherwise.source})", tag)

    def truth(self, piece: _Code) -> str:
        return self.checked_as(piece, _Tag.BOOL)

    def checked_as(self, piece: _Code, tag: _Tag) -> str:
        """Generate an expression whose value is of the type, or that falls back."""
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

    def call(self, node: ast.Call, names: Names) -> _Code:  # noqa: C901, PLR0911 - one line a group of functions
        given = list(node.arguments)
        if id(node) in self.checked.namespaced:
            raise Unsupported
        if node.receiver is not None:
            given.insert(0, node.receiver)
        match node.function:
            case "!_":
                return _Code(f"(not {self.truth(self.piece(given[0], names))})", _Tag.BOOL)
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

    def equality(self, left: _Code, right: _Code, *, negated: bool) -> _Code:
        operator = "!=" if negated else "=="
        if left.tag is not _Tag.ANY and left.tag is right.tag:
            return _Code(f"({left.source} {operator} {right.source})", _Tag.BOOL)
        if left.tag is right.tag:
            source = f"equal({left.source}, {right.source})"
            return _Code(f"(not {source})" if negated else source, _Tag.BOOL)
        if _Tag.ANY not in (left.tag, right.tag):
            raise Unsupported
        attribute, other = (left, right) if left.tag is _Tag.ANY else (right, left)
        value = self.variable()
        if other.tag is _Tag.VERSION:
            same = f"versions[{value}].order {operator} {other.source}"
            unlike = str(negated) if negated or attribute is left else "fall_back()"
            source = f"({same} if ({value} := {attribute.source}).__class__ is Version else {unlike})"
        elif other.tag in _CLASSES:
            # A version fails on the left of `==`. On its right, and on if_else side of `!=`, it is unequal.
            unlike = "True" if negated else f"equals_other_type({value})" if attribute is left else "False"
            same = f"{value} {operator} {other.source}"
            source = f"({same} if ({value} := {attribute.source}).__class__ is {_CLASSES[other.tag]} else {unlike})"
        else:
            raise Unsupported
        return _Code(source, _Tag.BOOL)

    def ordering(self, left: _Code, right: _Code, operator: str) -> _Code:
        tag = right.tag if left.tag is _Tag.ANY else left.tag
        if tag not in (_Tag.STR, _Tag.INT):
            raise Unsupported
        return _Code(f"({self.checked_as(left, tag)} {operator} {self.checked_as(right, tag)})", _Tag.BOOL)

    def membership(self, needle: ast.Node, container: ast.Node, names: Names) -> _Code:
        path = self.path(container, names)
        if path is not None and isinstance(needle, ast.Literal) and isinstance(needle.value, str):
            if path.domain is None or path.name is not None or path.optional:
                raise Unsupported
            return _Code(self.presence(path._replace(name=needle.value)), _Tag.BOOL)
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
            return _Code(f"({found.source} in {members})", _Tag.BOOL)
        if found.tag is not _Tag.ANY:
            raise Unsupported
        like = f"({value} := {found.source}).__class__ is {_CLASSES[tags[kind]]}"
        return _Code(f"({value} in {members} if {like} else equals_other_type({value}))", _Tag.BOOL)

    def constant_of(self, node: ast.Call) -> _Code:
        """Generate the constant of a quantity or version literal."""
        arguments = [part.value for part in node.arguments if isinstance(part, ast.Literal)]
        if len(arguments) < len(node.arguments) or node.receiver is not None or type(arguments[0]) is not str:
            raise Unsupported
        if node.function == "quantity":
            return _Code(self.constant(quantities.parse(arguments[0]).nanos), _Tag.AMOUNT)
        tolerant = len(arguments) > 1 and arguments[1] is True
        return _Code(self.constant(semver.parse_tolerant(arguments[0], tolerant).order), _Tag.VERSION)

    def optional(self, function: str, given: Sequence[ast.Node], names: Names) -> _Code:
        path = self.path(given[0], names)
        if path is None or not path.optional or path.name is None:
            raise Unsupported
        present = self.presence(path)
        if function == "hasValue":
            return _Code(present, _Tag.BOOL)
        value = self.read(path._replace(optional=False))
        if function == "value":
            return value
        return self.if_else(value, present, self.piece(given[1], names))

    def comparison(self, function: str, left: _Code, right: _Code) -> _Code:
        """Generate a comparison of quantities, which all capacities are, or of versions."""
        tag = left.tag if left.tag is not _Tag.ANY else right.tag
        if tag is _Tag.AMOUNT and left.tag is not right.tag:
            raise Unsupported
        tag = _Tag.VERSION if tag is _Tag.ANY else tag
        one, other = self.checked_as(left, tag), self.checked_as(right, tag)
        if function != "compareTo":
            return _Code(f"({one} {'>' if function == 'isGreaterThan' else '<'} {other})", _Tag.BOOL)
        first, second = self.variable(), self.variable()
        greater = f"(({first} := {one}) > ({second} := {other}))"
        return _Code(f"({greater} - ({first} < {second}))", _Tag.INT)

    def text(self, function: str, given: Sequence[ast.Node], names: Names) -> _Code:
        target = self.checked_as(self.piece(given[0], names), _Tag.STR)
        if function in _TEXT_TESTS:
            part = self.checked_as(self.piece(given[1], names), _Tag.STR)
            return _Code(_TEXT_TESTS[function].format(target, part), _Tag.BOOL)
        if function == "size":
            return _Code(f"len({target})", _Tag.INT)
        if function in ("lowerAscii", "upperAscii"):
            run = strings.lower_ascii if function == "lowerAscii" else strings.upper_ascii
            return _Code(f"{self.constant(run)}({target})", _Tag.STR)
        pattern = given[1]
        if not isinstance(pattern, ast.Literal) or type(pattern.value) is not str:
            raise Unsupported
        cached_search = self.constant(TextCache(_pattern_search(pattern.value, tests_only=function == "matches")))
        return _Code(f"{cached_search}[{target}]", _Tag.BOOL if function == "matches" else _Tag.STR)
