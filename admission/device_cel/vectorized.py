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
from admission.cel.library import quantities, regex, semver, strings
from admission.device_cel.parse_cache import ParseCache, TextCache

MAX_NODES = 300
"""Larger expressions are not vectorized: Python's compiler would take long, or reject their nesting."""

Bits = int
Loop = Callable[[Sequence[Device], str, tuple[Any, ...]], tuple[Bits, Bits]]


class FallBackError(Exception):
    """Raised within a generated loop: the interpreter has to evaluate the device."""


class NotVectorizableError(Exception):
    """Raised while a loop is generated, for an expression that has none. Caught in `compile_loop`."""


class VectorProgram(NamedTuple):
    """A generated loop. paths: the domains and names that it reads, in the order of its keys."""

    loop: Loop
    paths: tuple[tuple[str, str], ...]

    def evaluate(self, devices: Sequence[Device], driver: str) -> tuple[Bits, Bits]:
        """Return the devices with a true selector, and the undecided ones; undefined for unreadable devices."""
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
        body = generator.condition(generator.generate(root, {"device": _Path()}))
        source = _TEMPLATE.format(keys=generator.keys(), guard=generator.guard(), body=body)
        exec(compile(source, "<vectorized>", "exec"), generator.table)  # noqa: S102
    except (NotVectorizableError, errors.EvaluationError, SyntaxError, RecursionError, MemoryError):
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


class _Type(Enum):
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
    type_: _Type


class _Path(NamedTuple):
    """The path of a chain of selections within a device: the device, one of its maps, a domain of it, or a value."""

    field: str = ""
    domain: str | None = None
    name: str | None = None
    optional: bool = False


Names = Mapping[str, _Path]

_CLASSES = {_Type.STR: "str", _Type.INT: "int", _Type.BOOL: "bool"}
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
    raise FallBackError


def _equals_other_type(value: object) -> bool:
    """Return False: an attribute is unequal to a scalar of another type. Falls back for a version, which fails."""
    if value.__class__ is Version:
        raise FallBackError
    return False


def _equal(left: object, right: object) -> bool:
    if left.__class__ not in _SCALARS or right.__class__ not in _SCALARS:
        raise FallBackError
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
        names = "".join(f"K{index}, O{index}, " for index in range(len(self.paths)))
        return f"{names}= keys" if names else "pass"

    def guard(self) -> str:
        """Generate a test that falls back if a device qualifies a name by its driver's domain.

        Such a device may have the plain name too, and the two would be one name in CEL.
        """
        tests = [
            f"O{index} in {'device.capacity' if field == 'capacity' else 'A'}"
            for index, (field, _, _) in enumerate(self.paths)
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
        entry = (path.field, path.domain, path.name)
        if entry not in self.paths:
            self.paths.append(entry)
        return f"K{self.paths.index(entry)}"

    def generate(self, node: ast.Node, names: Names) -> _Code:  # noqa: PLR0911 - one line a node
        path = self.path(node, names)
        if path is not None:
            return self.read(path)
        match node:
            case ast.Literal(value=bool() | str() | int()):
                return self.literal(node.value)
            case ast.Logic():
                terms = [self.condition(self.generate(term, names)) for term in node.terms]
                return _Code(f"({(' and ' if node.conjunction else ' or ').join(terms)})", _Type.BOOL)
            case ast.Conditional():
                return self.conditional(node, names)
            case ast.Has():
                return self.has(node, names)
            case ast.Bind():
                value = self.path(node.value, names)
                if value is None:
                    raise NotVectorizableError
                return self.generate(node.body, {**names, node.name: value})
            case ast.Call():
                return self.call(node, names)
            case _:
                raise NotVectorizableError

    def literal(self, value: Any) -> _Code:
        types_by_class = {bool: _Type.BOOL, str: _Type.STR, int: _Type.INT}
        if type(value) not in types_by_class:
            raise NotVectorizableError
        return _Code(self.constant(value), types_by_class[type(value)])

    def path(self, node: ast.Node, names: Names) -> _Path | None:
        """Return the path of a chain of selections, or None for any other node."""
        match node:
            case ast.Identifier():
                return names.get(node.name)
            case ast.Select() if not self.checked.is_name(node):
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
            raise NotVectorizableError
        if path.field == "driver":
            return _Code("driver", _Type.STR)
        if path.field == "allowMultipleAllocations":
            return _Code("device.allows_multiple", _Type.BOOL)
        if path.name is None:
            raise NotVectorizableError
        if path.field == "capacity":
            return _Code(f"amounts[device.capacity[{self.key(path)}].text].amount.nanos", _Type.AMOUNT)
        return _Code(f"A[{self.key(path)}]", _Type.ANY)

    def presence(self, path: _Path) -> str:
        if path.domain is None:
            raise NotVectorizableError
        if path.name is None:
            return "True"
        return f"({self.key(path)} in {'device.capacity' if path.field == 'capacity' else 'A'})"

    def has(self, node: ast.Has, names: Names) -> _Code:
        operand = self.path(node.operand, names)
        if operand is None or operand.field not in ("attributes", "capacity") or operand.name is not None:
            raise NotVectorizableError
        target = _extended(operand, node.field, optional=False)
        if target is None:
            raise NotVectorizableError
        return _Code(self.presence(target), _Type.BOOL)

    def conditional(self, node: ast.Conditional, names: Names) -> _Code:
        condition = self.condition(self.generate(node.condition, names))
        return self.if_else(self.generate(node.then, names), condition, self.generate(node.otherwise, names))

    def if_else(self, then: _Code, condition: str, otherwise: _Code) -> _Code:
        type_ = then.type_ if then.type_ is otherwise.type_ else _Type.ANY
        if {_Type.AMOUNT, _Type.VERSION} & {then.type_, otherwise.type_} and type_ is _Type.ANY:
            raise NotVectorizableError
        return _Code(f"({then.source} if {condition} else {otherwise.source})", type_)

    def condition(self, code: _Code) -> str:
        return self.cast(code, _Type.BOOL)

    def cast(self, code: _Code, type_: _Type) -> str:
        """Generate an expression whose value is of the type, or that falls back."""
        if code.type_ is type_:
            return code.source
        if code.type_ is not _Type.ANY:
            raise NotVectorizableError
        value = self.variable()
        if type_ is _Type.VERSION:
            return f"(versions[{value}].order if ({value} := {code.source}).__class__ is Version else fall_back())"
        if type_ not in _CLASSES:
            raise NotVectorizableError
        return f"({value} if ({value} := {code.source}).__class__ is {_CLASSES[type_]} else fall_back())"

    def call(self, node: ast.Call, names: Names) -> _Code:  # noqa: C901, PLR0911 - one line a group of functions
        arguments = list(node.arguments)
        if id(node) in self.checked.namespaced:
            raise NotVectorizableError
        if node.receiver is not None:
            arguments.insert(0, node.receiver)
        match node.function:
            case "!_":
                return _Code(f"(not {self.condition(self.generate(arguments[0], names))})", _Type.BOOL)
            case "_==_" | "_!=_":
                codes = [self.generate(part, names) for part in arguments]
                return self.equality(codes[0], codes[1], negated=node.function == "_!=_")
            case "_<_" | "_<=_" | "_>_" | "_>=_":
                left, right = (self.generate(part, names) for part in arguments)
                return self.ordering(left, right, _ORDERINGS[node.function])
            case "@in":
                return self.membership(arguments[0], arguments[1], names)
            case "quantity" | "semver":
                return self.constant_of(node)
            case "hasValue" | "orValue" | "value":
                return self.optional(node.function, arguments, names)
            case "compareTo" | "isGreaterThan" | "isLessThan":
                return self.comparison(node.function, *(self.generate(part, names) for part in arguments))
            case "matches" | "find" | "startsWith" | "endsWith" | "contains" | "size" | "lowerAscii" | "upperAscii":
                return self.text(node.function, arguments, names)
            case _:
                raise NotVectorizableError

    def equality(self, left: _Code, right: _Code, *, negated: bool) -> _Code:
        operator = "!=" if negated else "=="
        if left.type_ is not _Type.ANY and left.type_ is right.type_:
            return _Code(f"({left.source} {operator} {right.source})", _Type.BOOL)
        if left.type_ is right.type_:
            source = f"equal({left.source}, {right.source})"
            return _Code(f"(not {source})" if negated else source, _Type.BOOL)
        if _Type.ANY not in (left.type_, right.type_):
            raise NotVectorizableError
        attribute, other = (left, right) if left.type_ is _Type.ANY else (right, left)
        value = self.variable()
        if other.type_ is _Type.VERSION:
            same = f"versions[{value}].order {operator} {other.source}"
            unlike = str(negated) if negated or attribute is left else "fall_back()"
            source = f"({same} if ({value} := {attribute.source}).__class__ is Version else {unlike})"
        elif other.type_ in _CLASSES:
            # A version fails on the left of `==`. On its right, and on either side of `!=`, it is unequal.
            unlike = "True" if negated else f"equals_other_type({value})" if attribute is left else "False"
            same = f"{value} {operator} {other.source}"
            source = f"({same} if ({value} := {attribute.source}).__class__ is {_CLASSES[other.type_]} else {unlike})"
        else:
            raise NotVectorizableError
        return _Code(source, _Type.BOOL)

    def ordering(self, left: _Code, right: _Code, operator: str) -> _Code:
        type_ = right.type_ if left.type_ is _Type.ANY else left.type_
        if type_ not in (_Type.STR, _Type.INT):
            raise NotVectorizableError
        return _Code(f"({self.cast(left, type_)} {operator} {self.cast(right, type_)})", _Type.BOOL)

    def membership(self, needle: ast.Node, container: ast.Node, names: Names) -> _Code:
        path = self.path(container, names)
        if path is not None and isinstance(needle, ast.Literal) and isinstance(needle.value, str):
            if path.domain is None or path.name is not None or path.optional:
                raise NotVectorizableError
            return _Code(self.presence(path._replace(name=needle.value)), _Type.BOOL)
        if not isinstance(container, ast.ListLiteral) or not container.elements:
            raise NotVectorizableError
        elements = [entry.value.value for entry in container.elements if isinstance(entry.value, ast.Literal)]
        kind = type(elements[0]) if elements else None
        types_by_class: dict[type | None, _Type] = {str: _Type.STR, int: _Type.INT}
        if (
            kind not in types_by_class
            or len(elements) < len(container.elements)
            or {type(e) for e in elements} != {kind}
        ):
            raise NotVectorizableError
        found, value = self.generate(needle, names), self.variable()
        members = self.constant(frozenset(elements))
        if found.type_ is types_by_class[kind]:
            return _Code(f"({found.source} in {members})", _Type.BOOL)
        if found.type_ is not _Type.ANY:
            raise NotVectorizableError
        like = f"({value} := {found.source}).__class__ is {_CLASSES[types_by_class[kind]]}"
        return _Code(f"({value} in {members} if {like} else equals_other_type({value}))", _Type.BOOL)

    def constant_of(self, node: ast.Call) -> _Code:
        """Generate the constant of a quantity or version literal."""
        arguments = [part.value for part in node.arguments if isinstance(part, ast.Literal)]
        if len(arguments) < len(node.arguments) or node.receiver is not None or type(arguments[0]) is not str:
            raise NotVectorizableError
        if node.function == "quantity":
            return _Code(self.constant(quantities.parse(arguments[0]).amount.nanos), _Type.AMOUNT)
        tolerant = len(arguments) > 1 and arguments[1] is True
        return _Code(self.constant(semver.parse_tolerant(arguments[0], tolerant).order), _Type.VERSION)

    def optional(self, function: str, arguments: Sequence[ast.Node], names: Names) -> _Code:
        path = self.path(arguments[0], names)
        if path is None or not path.optional or path.name is None:
            raise NotVectorizableError
        present = self.presence(path)
        if function == "hasValue":
            return _Code(present, _Type.BOOL)
        value = self.read(path._replace(optional=False))
        if function == "value":
            return value
        return self.if_else(value, present, self.generate(arguments[1], names))

    def comparison(self, function: str, left: _Code, right: _Code) -> _Code:
        """Generate a comparison of quantities, which all capacities are, or of versions."""
        type_ = left.type_ if left.type_ is not _Type.ANY else right.type_
        if type_ is _Type.AMOUNT and left.type_ is not right.type_:
            raise NotVectorizableError
        type_ = _Type.VERSION if type_ is _Type.ANY else type_
        one, other = self.cast(left, type_), self.cast(right, type_)
        if function != "compareTo":
            return _Code(f"({one} {'>' if function == 'isGreaterThan' else '<'} {other})", _Type.BOOL)
        first, second = self.variable(), self.variable()
        greater = f"(({first} := {one}) > ({second} := {other}))"
        return _Code(f"({greater} - ({first} < {second}))", _Type.INT)

    def text(self, function: str, arguments: Sequence[ast.Node], names: Names) -> _Code:
        target = self.cast(self.generate(arguments[0], names), _Type.STR)
        if function in _TEXT_TESTS:
            part = self.cast(self.generate(arguments[1], names), _Type.STR)
            return _Code(_TEXT_TESTS[function].format(target, part), _Type.BOOL)
        if function == "size":
            return _Code(f"len({target})", _Type.INT)
        if function in ("lowerAscii", "upperAscii"):
            run = strings.lower_ascii if function == "lowerAscii" else strings.upper_ascii
            return _Code(f"{self.constant(run)}({target})", _Type.STR)
        pattern = arguments[1]
        if not isinstance(pattern, ast.Literal) or type(pattern.value) is not str:
            raise NotVectorizableError
        cached_search = self.constant(TextCache(_pattern_search(pattern.value, tests_only=function == "matches")))
        return _Code(f"{cached_search}[{target}]", _Type.BOOL if function == "matches" else _Type.STR)
