"""The abstract syntax of CEL, as the parser builds it.

Macros are nodes of their own (Has, Comprehension, Bind, OptionalMap), not rewritten to folds as in cel-go: they are
few, and are easier to check and to plan as a whole. `at` is the offset to which cel-go attributes the node's errors:
that of the operator, the dot, or the opening bracket.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Node:
    """Any expression. depth: its nesting; height: its operators in a row. cel-go limits the recursion of both."""

    at: int
    depth: int = 0
    height: int = 0


@dataclass(slots=True, kw_only=True)
class Literal(Node):
    value: object


@dataclass(slots=True, kw_only=True)
class Identifier(Node):
    """A name. rooted: whether a dot stands before it, so that it is no variable of a macro."""

    name: str
    rooted: bool = False


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
    """A call of a function or an operator (`_+_`). receiver: the operand of a method call."""

    function: str
    receiver: Node | None
    arguments: Sequence[Node]


@dataclass(slots=True, kw_only=True)
class Logic(Node):
    """A flat chain of `&&` or of `||`: valid expressions chain more terms than Python can nest calls."""

    conjunction: bool
    terms: list[Node]
    closed: bool = False
    """Whether it is in parentheses, so that a further term starts another chain."""


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
    """`Type{field: value, …}`: entries without keys, and the names of their fields in the same order."""

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
    """`range.macro(first, [second,] [condition,] body)`. macro: its name."""

    macro: str
    range: Node
    first: str
    second: str | None
    condition: Node | None
    body: Node


@dataclass(slots=True, kw_only=True)
class Bind(Node):
    """`cel.bind(name, value, body)`. The value is computed when it is first read."""

    name: str
    value: Node
    body: Node


@dataclass(slots=True, kw_only=True)
class OptionalMap(Node):
    """`operand.optMap(name, body)`. flat: `optFlatMap`, whose body is an optional itself."""

    operand: Node
    name: str
    body: Node
    flat: bool


def in_scope(root: Node, variables: Collection[str]) -> Iterator[Node]:
    """Yield the nodes of an expression that see the same variables, in post-order.

    A caller that visits them in this order has visited all parts of a node before the node, so long expressions do not
    nest its calls. A name that may be a namespace or a type (`sets.contains`) is left to its parent. variables: the
    names in scope.
    """
    pending: list[tuple[Node, bool]] = [(root, False)]
    while pending:
        node, is_done = pending.pop()
        if is_done:
            yield node
            continue
        pending.append((node, True))
        pending.extend(
            (part, False) for part in reversed(_children_in_scope(node)) if not _is_qualified_name(part, variables)
        )


def _children_in_scope(node: Node) -> list[Node]:
    match node:
        case Comprehension():
            return [node.range]
        case Bind():
            return [node.value]
        case OptionalMap():
            return [node.operand]
        case _:
            return children(node)


def _is_qualified_name(node: Node, variables: Collection[str]) -> bool:
    while isinstance(node, Select):
        node = node.operand
    return isinstance(node, Identifier) and node.name not in variables


def children(node: Node) -> list[Node]:  # noqa: C901, PLR0911 - one line a node
    """Return the node's direct children."""
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
    """Return the free variables of an expression, each with the field that is selected from it: `a`, or `a.b`."""
    found: set[str] = set()
    pending: list[tuple[Node, frozenset[str]]] = [(root, frozenset())]
    while pending:
        node, bound = pending.pop()
        match node:
            case Identifier():
                found.update({node.name} - bound)
            case Select(operand=Identifier(name=name)) | Has(operand=Identifier(name=name)):
                if name not in bound:
                    found.add(f"{name}.{node.field}")
            case _:
                outside = _children_in_scope(node)
                pending.extend((part, bound) for part in outside)
                # A chain of && has many terms, so no part is looked for among the others.
                known = set(map(id, outside))
                inside = [part for part in children(node) if id(part) not in known]
                pending.extend((part, bound | _bound_names(node)) for part in inside)
    return frozenset(found)


def _bound_names(node: Node) -> frozenset[str]:
    match node:
        case Comprehension():
            return frozenset(filter(None, (node.first, node.second)))
        case Bind() | OptionalMap():
            return frozenset({node.name})
        case _:
            return frozenset()
