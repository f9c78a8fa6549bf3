"""Code whose mutants are not planted, because no test could or should notice them.

Type annotations and aliases, what only type checkers read, protocols, decorators (`slots=True`, `frozen=True`), whether
a class is `frozen`, the words of exceptions and log lines, arguments that change no answer (`zip(strict=True)`,
`plan(mute=True)`), when a full cache is emptied, and figures that were chosen and not derived: a module's constant,
whose name is in capitals and whose value is made of literals alone (sizes of caches and batches, seconds of patience,
bounds of the API). All else is fair game.
"""

import ast
from collections.abc import Iterator

Span = tuple[tuple[int, int], tuple[int, int]]
"""Begin and end, each a line from 1 and a column from 0 in characters; the end is exclusive."""

_TYPING_ONLY = {"overload", "abstractmethod"}
_IDLE_KEYWORDS = {"strict", "repr", "mute", "total", "frozen"}
_DECIDING = (ast.Compare, ast.BoolOp, ast.IfExp, ast.Lambda, ast.comprehension, ast.Subscript)
_LOGGERS = {"log", "_log", "logger"}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def spans(source: str) -> list[Span]:
    """Return the parts of a module in which nothing is mutated."""
    tree = ast.parse(source)
    lines = source.splitlines()
    excluded = [*_aliases(tree), *_figures(tree), *(part for node in ast.walk(tree) for part in _excluded(node))]
    return [_span(node, lines) for node in excluded]


def negations(source: str) -> set[tuple[int, int]]:
    """Return where a comparison or a `not` begins: to negate it there is a mutant of another operator already."""
    lines = source.splitlines()
    return {
        _span(node, lines)[0] for node in ast.walk(ast.parse(source)) if isinstance(node, ast.expr) and _turns(node)
    }


def _turns(node: ast.expr) -> bool:
    match node:
        case ast.UnaryOp(op=ast.Not()):
            return True
        case ast.Compare(ops=[ast.Eq() | ast.NotEq() | ast.Is() | ast.IsNot() | ast.In() | ast.NotIn()]):
            return True
        case _:
            return False


def covers(excluded: list[Span], begin: tuple[int, int]) -> bool:
    """Return whether a position lies in one of the spans."""
    return any(first <= begin < last for first, last in excluded)


def _excluded(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the node itself, or those of its parts, that are excluded."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from _of_function(node)
        case ast.ClassDef():
            yield from node.decorator_list
            yield from (keyword.value for keyword in node.keywords if keyword.arg in _IDLE_KEYWORDS)
            if any(_name(base) == "Protocol" for base in node.bases):
                yield node
        case ast.arg(annotation=ast.expr() as annotation) | ast.AnnAssign(annotation=annotation):
            yield annotation
        case ast.If(test=ast.Name("TYPE_CHECKING") | ast.Compare(left=ast.Name("__name__"))) | ast.Raise():
            yield node
        case ast.If(body=[ast.Expr(value=ast.Call(func=ast.Attribute(attr="clear"), args=[]))], orelse=[]):
            yield node.test
        case ast.Call():
            yield from _of_call(node)
        case _:
            pass


def _of_function(node: _Function) -> Iterator[ast.AST]:
    yield from node.decorator_list
    if node.returns:
        yield node.returns
    if any(_name(decorator) in _TYPING_ONLY for decorator in node.decorator_list):
        yield node


def _of_call(node: ast.Call) -> Iterator[ast.AST]:
    match node.func:
        case ast.Name("isinstance" | "issubclass") if len(node.args) > 1:
            yield node.args[1]
        case ast.Name("cast" | "assert_never"):
            yield node.args[0]
        case ast.Attribute(value=ast.Name(name)) if name in _LOGGERS:
            yield node
    yield from (keyword.value for keyword in node.keywords if keyword.arg in _IDLE_KEYWORDS)


def _aliases(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield what module-level names in CamelCase are bound to: type aliases, type variables, NewTypes."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(name)]) if name.lstrip("_")[:1].isupper() and not name.isupper():
                yield node


def _figures(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield what module-level names in capitals are bound to, where that is made of literals alone."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=figure) if name.isupper() and _is_literal(figure):
                yield figure
            case _:
                pass


def _is_literal(node: ast.expr) -> bool:
    """Return whether an expression has only literals, names, arithmetic, and calls with these: nothing that decides."""
    return not any(isinstance(part, _DECIDING) for part in ast.walk(node))


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value) | ast.Call(func=value):
            return _name(value)
        case _:
            return ""


def _span(node: ast.AST, lines: list[str]) -> Span:
    place = ast.stmt if isinstance(node, ast.stmt) else ast.expr
    assert isinstance(node, place)
    end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
    return _position(lines, node.lineno, node.col_offset), _position(lines, end_line, end_column)


def _position(lines: list[str], line: int, column: int) -> tuple[int, int]:
    """Convert a column in bytes, as `ast` counts, to one in characters."""
    return line, len(lines[line - 1].encode()[:column].decode())
