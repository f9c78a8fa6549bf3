"""The AST builder: the parser's reductions → nodes, bottom-up, without an intermediate tree and without recursion.

It also makes the checks of cel-go's parser beyond its grammar: reserved words, runs of signs, limits of nesting.
"""

from collections.abc import Sequence
from typing import Any

import lark

from admission.cel.core import ast, errors, literals
from admission.cel.syntax import macros

MAX_DEPTH = 250
"""cel-go's limit of nested expressions (parentheses, arguments), and of chains of operators and selections."""

RESERVED = frozenset(
    {
        *("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let"),
        *("loop", "package", "namespace", "null", "return", "true", "var", "void", "while"),
    }
)

OPERATORS = {
    "<": "_<_",
    "<=": "_<=_",
    ">": "_>_",
    ">=": "_>=_",
    "==": "_==_",
    "!=": "_!=_",
    "in": "@in",
    "+": "_+_",
    "-": "_-_",
    "*": "_*_",
    "/": "_/_",
    "%": "_%_",
}


class Prefix:
    """A run of `!` or of `-` before an operand, resolved when the run has ended."""

    def __init__(self, sign: lark.Token, operand: ast.Node) -> None:
        self.sign = sign
        self.operand = operand
        self.count = 1

    def resolve(self) -> ast.Node:
        """Return the operand with one sign or none: cel-go drops an even run."""
        if self.count == 1 and self.sign == "-" and _negate(self.operand):
            return self.operand
        if self.count % 2 == 0:
            return self.operand
        _in_range(self.operand)
        function = "!_" if self.sign == "!" else "-_"
        call = ast.Call(at=_at(self.sign), function=function, receiver=None, arguments=[self.operand])
        _with_size(call, up=0)
        return call


def _negate(node: ast.Node) -> bool:
    """Negate a number literal at the start of the operand: `-5.f()` calls f on -5."""
    while isinstance(node, ast.Select | ast.Index | ast.Call):
        inner = node.receiver if isinstance(node, ast.Call) else node.operand
        if inner is None:
            return False
        node = inner
    if not isinstance(node, ast.Literal) or node.depth or type(node.value) not in (int, float):
        return False
    node.value = -node.value  # type: ignore[operator]
    return True


def _at(token: Any) -> int:
    return token.start_pos or 0


def _with_size(node: ast.Node, *, up: int = 1, nest: int = 0) -> Any:
    """Set the node's height and depth by its parts. Raises RefusalError beyond cel-go's limits."""
    parts = ast.children(node)
    node.height = up + max((part.height for part in parts), default=0)
    node.depth = nest + max((part.depth for part in parts), default=0)
    if node.height > MAX_DEPTH:
        raise errors.RefusalError(-1, "max recursion depth exceeded")
    if node.depth >= MAX_DEPTH:
        raise errors.RefusalError(-1, f"expression recursion limit exceeded: {MAX_DEPTH}")
    return node


def _in_range(node: Any) -> Any:
    if isinstance(node, ast.Literal) and type(node.value) is int and node.value > literals.INT_MAX:
        raise errors.RefusalError(node.at, "invalid int literal")
    return node


def _unreserved(token: lark.Token) -> str:
    if token in RESERVED:
        raise errors.RefusalError(_at(token), f"reserved identifier: {token}")
    return str(token)


def _binary(children: list[Any]) -> Any:
    if len(children) == 1:
        return children[0]
    (left, operator), right = children
    function = OPERATORS[str(operator)]
    return _with_size(ast.Call(at=_at(operator), function=function, receiver=None, arguments=[left, right]))


def _pair(children: list[Any]) -> Any:
    return children


def _first(children: list[Any]) -> Any:
    return children[0]


def _chain(children: list[Any], *, conjunction: bool) -> Any:
    if len(children) == 1:
        return children[0]
    left, operator, right = children
    if isinstance(left, ast.Logic) and left.conjunction is conjunction and not left.closed:
        left.terms.append(right)
        left.height = max(left.height, right.height)
        left.depth = max(left.depth, right.depth)
        return left
    return _with_size(ast.Logic(at=_at(operator), conjunction=conjunction, terms=[left, right]), up=0)


def _append(children: list[Any]) -> Any:
    if len(children) == 1:
        return children
    children[0].append(children[2])
    return children[0]


def _without_tokens(children: Sequence[Any]) -> list[Any]:
    return [child for child in children if not isinstance(child, lark.Token)]


class Builder(lark.Transformer[Any, ast.Node]):
    """The methods that the parser calls, one for each rule of the grammar."""

    def expr(self, children: list[Any]) -> Any:
        if len(children) == 1:
            return children[0]
        condition, mark, then, _, otherwise = children
        # Each `?:` to the right is a nested expression to cel-go.
        otherwise.depth += 1
        return _with_size(ast.Conditional(at=_at(mark), condition=condition, then=then, otherwise=otherwise))

    def conditionalor(self, children: list[Any]) -> Any:
        return _chain(children, conjunction=False)

    def conditionaland(self, children: list[Any]) -> Any:
        return _chain(children, conjunction=True)

    relation = staticmethod(_binary)
    addition = staticmethod(_binary)
    relation_lt = relation_le = relation_gt = relation_ge = relation_eq = relation_ne = staticmethod(_pair)
    relation_in = addition_add = addition_sub = staticmethod(_pair)
    multiplication_mul = multiplication_div = multiplication_mod = staticmethod(_pair)
    unary_not = unary_neg = member = primary = staticmethod(_first)

    def multiplication(self, children: list[Any]) -> Any:
        if isinstance(children[-1], Prefix):
            children[-1] = children[-1].resolve()
        _in_range(children[-1])
        return _binary(children)

    def unary(self, children: list[Any]) -> Any:
        if len(children) == 1:
            return children[0]
        sign, operand = children
        if not isinstance(operand, Prefix):
            return Prefix(sign, operand)
        if sign == "!" and operand.sign == "-" and operand.count == 1 and _negate(operand.operand):
            return Prefix(sign, operand.operand)  # a number has its sign: `!-7`
        if operand.sign != sign:
            raise errors.RefusalError(_at(operand.sign), f"Syntax error: unexpected {operand.sign!s} after {sign!s}")
        operand.count += 1
        operand.sign = sign
        return operand

    def member_dot(self, children: list[Any]) -> Any:
        operand, dot, field = children
        return _with_size(ast.Select(at=_at(dot), operand=operand, field=field.strip("`")))

    def member_opt_dot(self, children: list[Any]) -> Any:
        operand, dot, _, field = children
        return _with_size(ast.Select(at=_at(dot), operand=operand, field=field.strip("`"), optional=True))

    def member_dot_arg(self, children: list[Any]) -> Any:
        operand, _, name, opening, *rest = children
        arguments = rest[0] if len(rest) > 1 else []
        return _with_size(macros.method(_at(opening), str(name), operand, arguments))

    def member_index(self, children: list[Any]) -> Any:
        operand, opening, key, _ = children
        key.depth += 1
        return _with_size(ast.Index(at=_at(opening), operand=operand, key=key))

    def member_opt_index(self, children: list[Any]) -> Any:
        operand, opening, _, key, _ = children
        key.depth += 1
        return _with_size(ast.Index(at=_at(opening), operand=operand, key=key, optional=True))

    def member_object(self, children: list[Any]) -> Any:
        name = macros.qualified_name(children[0])
        if name is None:
            raise errors.RefusalError(_at(children[1]), "Syntax error: unexpected '{'")
        fields = next((child for child in children[1:] if isinstance(child, list)), [])
        entries = [entry for _, entry in fields]
        names = [field for field, _ in fields]
        return _with_size(ast.Message(at=_at(children[1]), name=name, entries=entries, fields=names), up=0, nest=1)

    def dot_ident_arg(self, children: list[Any]) -> Any:
        return self.ident_arg(children[1:])

    def dot_ident(self, children: list[Any]) -> Any:
        return ast.Identifier(at=_at(children[1]), name=_unreserved(children[1]), rooted=True)

    def ident_arg(self, children: list[Any]) -> Any:
        name, opening, *rest = children
        arguments = rest[0] if len(rest) > 1 else []
        return _with_size(macros.function(_at(opening), _unreserved(name), arguments), up=0)

    def ident(self, children: list[Any]) -> Any:
        return ast.Identifier(at=_at(children[0]), name=_unreserved(children[0]))

    def paren_expr(self, children: list[Any]) -> Any:
        node = children[1]
        node.depth += 1
        if node.depth >= MAX_DEPTH:
            raise errors.RefusalError(-1, f"expression recursion limit exceeded: {MAX_DEPTH}")
        if isinstance(node, ast.Logic):
            node.closed = True
        return node

    def list_lit(self, children: list[Any]) -> Any:
        elements = next((child for child in children if isinstance(child, list)), [])
        return _with_size(ast.ListLiteral(at=_at(children[0]), elements=elements), up=0, nest=1)

    elements = mapinits = fieldinits = staticmethod(_append)

    def element(self, children: list[Any]) -> Any:
        return ast.Entry(key=None, value=children[-1], optional=len(children) == 2)

    def map_lit(self, children: list[Any]) -> Any:
        entries = next((child for child in children if isinstance(child, list)), [])
        return _with_size(ast.MapLiteral(at=_at(children[0]), entries=entries), up=0, nest=1)

    def entry(self, children: list[Any]) -> Any:
        key, _, value = children
        return ast.Entry(key=key.value, value=value, optional=key.optional)

    def exprlist(self, children: list[Any]) -> Any:
        arguments = _without_tokens(children)
        for argument in arguments:
            argument.depth += 1
        return arguments

    def fieldinit(self, children: list[Any]) -> Any:
        *mark, name, _, value = children
        return str(name), ast.Entry(key=None, value=value, optional=bool(mark))

    def literal(self, children: list[Any]) -> Any:
        token = children[0]
        return ast.Literal(at=_at(token), value=_VALUES[token.type](token))


def _constant(token: lark.Token) -> bool | None:
    return {"true": True, "false": False, "null": None}[str(token)]


_VALUES = {
    "INT_LIT": literals.integer,
    "UINT_LIT": literals.unsigned,
    "FLOAT_LIT": literals.double,
    "STRING_LIT": literals.string,
    "MLSTRING_LIT": literals.string,
    "BYTES_LIT": literals.octets,
    "BOOL_LIT": _constant,
    "NULL_LIT": _constant,
}
