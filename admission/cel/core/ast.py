"""The abstract syntax of CEL, as the parser builds it.

Macros are nodes of their own (Has, Comprehension, Bind, OptionalMap), not rewritten to folds as in cel-go: they are
few, and their meaning is easier to check and to compile whole. `at` is the offset in the text where cel-go places
the node's errors: the operator, the dot, the opening bracket.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Node:
    """Any expression. depth and height: its nesting, and its operators in a row, for cel-go's limits of recursion."""

    at: int
    depth: int = 0
    height: int = 0


@dataclass(slots=True, kw_only=True)
class Literal(Node):
    value: object


@dataclass(slots=True, kw_only=True)
class Identifier(Node):
    name: str


@dataclass(slots=True, kw_only=True)
class Select(Node):
    """`operand.field`, or `operand.?field` when optional."""

    operand: Node
    field: str
    optional: bool = False


@dataclass(slots=True, kw_only=True)
class Index(Node):
    """`operand[key]`, or `operand[?key]` when optional."""

    operand: Node
    key: Node
    optional: bool = False


@dataclass(slots=True, kw_only=True)
class Call(Node):
    """A call of a function or an operator (`_+_`), with a receiver when it is written as a method."""

    function: str
    receiver: Node | None
    arguments: Sequence[Node]


@dataclass(slots=True, kw_only=True)
class Logic(Node):
    """A chain of `&&` or of `||`, flat: legal texts chain more terms than Python may nest."""

    conjunction: bool
    terms: list[Node]
    closed: bool = False
    """In parentheses: a further term belongs to another chain."""


@dataclass(slots=True, kw_only=True)
class Conditional(Node):
    condition: Node
    then: Node
    otherwise: Node


@dataclass(slots=True, kw_only=True)
class Entry:
    """An element of a list (key is None) or an entry of a map; optional when written with a question mark."""

    key: Node | None
    value: Node
    optional: bool = False


@dataclass(slots=True, kw_only=True)
class ListLiteral(Node):
    elements: list[Entry]


@dataclass(slots=True, kw_only=True)
class MapLiteral(Node):
    entries: list[Entry]


@dataclass(slots=True, kw_only=True)
class Message(Node):
    """`Type{field: value, …}`: the entries without keys, and the fields' names beside them."""

    name: str
    entries: list[Entry]
    fields: list[str]


@dataclass(slots=True, kw_only=True)
class Has(Node):
    """`has(operand.field)`."""

    operand: Node
    field: str


@dataclass(slots=True, kw_only=True)
class Comprehension(Node):
    """`range.macro(first, [second,] [condition,] body)`; macro names which one."""

    macro: str
    range: Node
    first: str
    second: str | None
    condition: Node | None
    body: Node


@dataclass(slots=True, kw_only=True)
class Bind(Node):
    """`cel.bind(name, value, body)`: the value is computed when first read."""

    name: str
    value: Node
    body: Node


@dataclass(slots=True, kw_only=True)
class OptionalMap(Node):
    """`operand.optMap(name, body)`; flat: `optFlatMap`, whose body is itself an optional."""

    operand: Node
    name: str
    body: Node
    flat: bool


def in_scope(root: Node, known: Collection[str]) -> Iterator[Node]:
    """Yield the parts of an expression that see the same variables, each after its own parts, and the root last.

    So whoever follows the order finds all parts of a node done, and nests no deeper for a long text. A name that may
    be a function's namespace or a type (`sets.contains`) is left to its parent; known: the variables.
    """
    waiting: list[tuple[Node, bool]] = [(root, False)]
    while waiting:
        node, is_done = waiting.pop()
        if is_done:
            yield node
            continue
        waiting.append((node, True))
        waiting.extend((part, False) for part in reversed(_seeing_the_same(node)) if not _is_foreign(part, known))


def _seeing_the_same(node: Node) -> list[Node]:
    match node:
        case Comprehension():
            return [node.range]
        case Bind():
            return [node.value]
        case OptionalMap():
            return [node.operand]
        case _:
            return children(node)


def _is_foreign(node: Node, known: Collection[str]) -> bool:
    while isinstance(node, Select):
        node = node.operand
    return isinstance(node, Identifier) and node.name not in known


def children(node: Node) -> list[Node]:  # noqa: C901, PLR0911 - one line a node
    """Return the node's direct parts."""
    match node:
        case Select() | Has():
            return [node.operand]
        case Index():
            return [node.operand, node.key]
        case Call():
            return [*([node.receiver] if node.receiver else []), *node.arguments]
        case Logic():
            return node.terms
        case Conditional():
            return [node.condition, node.then, node.otherwise]
        case ListLiteral():
            return [entry.value for entry in node.elements]
        case Message():
            return [entry.value for entry in node.entries]
        case MapLiteral():
            return [part for entry in node.entries for part in (entry.key, entry.value) if part is not None]
        case Comprehension():
            return [part for part in (node.range, node.condition, node.body) if part is not None]
        case Bind():
            return [node.value, node.body]
        case OptionalMap():
            return [node.operand, node.body]
        case _:
            return []


def names(root: Node) -> frozenset[str]:
    """Return the names that a text reads from outside, each with the field that is selected of it: `a`, or `a.b`."""
    found: set[str] = set()
    waiting: list[tuple[Node, frozenset[str]]] = [(root, frozenset())]
    while waiting:
        node, bound = waiting.pop()
        match node:
            case Identifier():
                found.update({node.name} - bound)
            case Select(operand=Identifier(name=name)) | Has(operand=Identifier(name=name)):
                if name not in bound:
                    found.add(f"{name}.{node.field}")
            case _:
                outside = _seeing_the_same(node)
                waiting.extend((part, bound) for part in outside)
                inside = [part for part in children(node) if not any(part is other for other in outside)]
                waiting.extend((part, bound | _binds(node)) for part in inside)
    return frozenset(found)


def _binds(node: Node) -> frozenset[str]:
    match node:
        case Comprehension():
            return frozenset(filter(None, (node.first, node.second)))
        case Bind() | OptionalMap():
            return frozenset({node.name})
        case _:
            return frozenset()
