"""Macros: calls whose arguments are variable names and expressions that are evaluated in a scope of their own.

A macro is recognized by its name, its number of arguments and whether it has a receiver, as in cel-go
(parser/macro.go, ext/*.go); any other call of its name is an ordinary call.
"""

from collections.abc import Sequence

from admission.cel.core import ast, errors

_ONE_VARIABLE = {("all", 2), ("exists", 2), ("exists_one", 2), ("filter", 2), ("map", 2), ("map", 3)}
_TWO_VARIABLES = {
    ("all", 3),
    ("exists", 3),
    ("exists_one", 3),
    ("existsOne", 3),
    ("transformList", 3),
    ("transformList", 4),
    ("transformMap", 3),
    ("transformMap", 4),
    ("transformMapEntry", 3),
    ("transformMapEntry", 4),
}
_ACCUMULATORS = {"__result__", "@result"}


def qualified_name(node: ast.Node) -> str | None:
    """Return the qualified name `a.b.c` that a node is, or None."""
    match node:
        case ast.Identifier():
            return node.name
        case ast.Select(optional=False):
            prefix = qualified_name(node.operand)
            return prefix and f"{prefix}.{node.field}"
        case _:
            return None


def function(at: int, name: str, arguments: Sequence[ast.Node]) -> ast.Node:
    """Return the node of `name(arguments)`: a macro or a call."""
    if name != "has" or len(arguments) != 1:
        return ast.Call(at=at, function=name, receiver=None, arguments=arguments)
    selection = arguments[0]
    if not isinstance(selection, ast.Select) or selection.optional:
        raise errors.RefusalError(selection.at, "invalid argument to has() macro")
    return ast.Has(at=at, operand=selection.operand, field=selection.field)


def method(at: int, name: str, receiver: ast.Node, arguments: Sequence[ast.Node]) -> ast.Node:
    """Return the node of `receiver.name(arguments)`: a macro or a call."""
    key = (name, len(arguments))
    if key in _TWO_VARIABLES:
        return _two_variables(at, name, receiver, arguments)
    if key in _ONE_VARIABLE:
        return _one_variable(at, name, receiver, arguments)
    if key == ("sortBy", 2):
        first, body = arguments
        if isinstance(receiver, ast.Literal | ast.MapLiteral | ast.Message):
            raise errors.RefusalError(receiver.at, "sortBy can only be applied to a list or to what may be one")
        return _comprehension(at, name, receiver, (_variable(first), None), (None, body))
    if name in ("optMap", "optFlatMap") and len(arguments) == 2:
        variable = _variable(arguments[0], f"{name}() variable name must be a simple identifier", is_read=True)
        return ast.OptionalMap(at=at, operand=receiver, name=variable, body=arguments[1], flat=name == "optFlatMap")
    if name == "bind" and len(arguments) == 3 and isinstance(receiver, ast.Identifier) and receiver.name == "cel":
        variable = _variable(arguments[0], "cel.bind() variable names must be simple identifiers", is_read=True)
        return ast.Bind(at=at, name=variable, value=arguments[1], body=arguments[2])
    return ast.Call(at=at, function=name, receiver=receiver, arguments=arguments)


def _one_variable(at: int, name: str, receiver: ast.Node, arguments: Sequence[ast.Node]) -> ast.Node:
    first, *conditions, body = arguments
    condition = conditions[0] if conditions else None
    return _comprehension(at, name, receiver, (_variable(first, is_read=name == "filter"), None), (condition, body))


def _two_variables(at: int, name: str, receiver: ast.Node, arguments: Sequence[ast.Node]) -> ast.Node:
    first, second, *conditions, body = arguments
    names = _variable(first, is_read=name == "transformMap"), _variable(second)
    if names[0] == names[1]:
        raise errors.RefusalError(second.at, f"duplicate variable name: {names[0]}")
    macro = "exists_one" if name == "existsOne" else name
    return _comprehension(at, macro, receiver, names, (conditions[0] if conditions else None, body))


def _comprehension(
    at: int,
    macro: str,
    target: ast.Node,
    names: tuple[str, str | None],
    parts: tuple[ast.Node | None, ast.Node],
) -> ast.Node:
    return ast.Comprehension(
        at=at, macro=macro, range=target, first=names[0], second=names[1], condition=parts[0], body=parts[1]
    )


def _variable(node: ast.Node, message: str = "argument must be a simple name", *, is_read: bool = False) -> str:
    """Return the name of a macro's variable; no expression can name one that is written with a dot before it.

    is_read: whether the expansion of the macro in cel-go names it itself.
    """
    if not isinstance(node, ast.Identifier):
        raise errors.RefusalError(node.at, message)
    if node.name in _ACCUMULATORS:
        raise errors.RefusalError(node.at, "iteration variable overwrites accumulator variable")
    if not node.rooted:
        return node.name
    if is_read:
        raise errors.RefusalError(node.at, f"undeclared reference to '.{node.name}' (in container '')")
    return f".{node.name}"
