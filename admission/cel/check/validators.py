"""Validators: cel-go's checks of a typed expression beyond its types, and the folding of constants.

Literals whose values decide whether a call can succeed are checked (cel/validator.go: durations, timestamps,
homogeneous lists and maps; ext/formatting.go: `format`; v0.26). Conversions of constants are folded, since cel-go
computes them while it plans a program (interpreter/decorators.go, maybeOptimizeConstUnary), so that a failure is an
error of the expression, not of its evaluation.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from admission.cel.check import type_checker
from admission.cel.core import ast, errors, types
from admission.cel.core.declarations import Overload
from admission.cel.core.types import Type
from admission.cel.library import regex, string_format

_FORMATTABLE = {
    "s": {"list", "map", "int", "uint", "double", "bool", "string", "timestamp", "bytes", "duration", "type", "null"},
    "d": {"int", "uint"},
    "f": {"double", "string"},
    "e": {"double", "string"},
    "b": {"int", "uint", "bool"},
    "x": {"int", "uint", "string", "bytes"},
    "X": {"int", "uint", "string", "bytes"},
    "o": {"int", "uint"},
}


def validate(root: ast.Node, checked: type_checker.CheckedAst) -> None:
    """Raise RefusalError at the first invalid literal."""
    for node, within_format in _walk(root):
        match node:
            case ast.ListLiteral() | ast.MapLiteral() if not within_format:
                _check_aggregate(node, checked)
            case ast.Call(function="duration" | "timestamp", receiver=None):
                _check_conversion(node, checked)
            case ast.Call(function="matches", receiver=None):
                _check_first_argument(node)
            case ast.Call(function="format", receiver=ast.Literal(value=str() as pattern)):
                _check_format(node, pattern, checked)
            case _:
                pass


def _walk(root: ast.Node) -> Iterator[tuple[ast.Node, bool]]:
    """Yield all nodes, and whether they are within a call of `format`, which accepts heterogeneous lists."""
    pending = [(root, False)]
    while pending:
        node, within_format = pending.pop()
        yield node, within_format
        within_format = within_format or (isinstance(node, ast.Call) and node.function == "format")
        pending.extend((part, within_format) for part in reversed(ast.children(node)))


def _check_aggregate(node: ast.ListLiteral | ast.MapLiteral, checked: type_checker.CheckedAst) -> None:
    entries = node.elements if isinstance(node, ast.ListLiteral) else node.entries
    _check_same_type([(entry.key, False) for entry in entries if entry.key is not None], checked)
    _check_same_type([(entry.value, entry.optional) for entry in entries], checked)


def _check_same_type(parts: list[tuple[ast.Node, bool]], checked: type_checker.CheckedAst) -> None:
    common: Type | None = None
    for part, optional in parts:
        type_ = checked.type_of(part)
        if optional:
            type_ = types.unwrapped(type_)[0]
        if type_.name == "wrapper":
            type_ = type_.parameters[0]
        if common is not None and type_ != common:
            raise errors.RefusalError(part.at, f"expected type '{common}' but found '{type_}'")
        common = type_


def _check_conversion(node: ast.Call, checked: type_checker.CheckedAst) -> None:
    argument = node.arguments[0]
    if not isinstance(argument, ast.Literal):
        return
    try:
        convert(checked.overloads[id(node)], argument.value)
    except errors.EvaluationError:
        raise errors.RefusalError(argument.at, f"invalid {node.function} argument") from None


def _check_first_argument(node: ast.Call) -> None:
    """Refuse a literal that is no pattern as the first argument, which cel-go takes for the pattern in either form.

    `validateCalls` looks at it, though in `matches(text, pattern)` it is the text.
    """
    argument = node.arguments[0]
    if isinstance(argument, ast.Literal) and isinstance(argument.value, str):
        try:
            regex.compile_pattern(argument.value)
        except errors.EvaluationError:
            raise errors.RefusalError(argument.at, "invalid matches argument") from None


def _check_format(node: ast.Call, pattern: str, checked: type_checker.CheckedAst) -> None:
    arguments = node.arguments[0]
    if not isinstance(arguments, ast.ListLiteral):
        return
    elements = [entry.value for entry in arguments.elements]
    used = 0
    try:
        for _, letter, _ in string_format.clauses(pattern):
            if not letter:
                continue
            if used >= len(elements):
                raise errors.RefusalError(node.at, f"index {used} out of range")
            _check_format_argument(elements[used], letter, checked)
            used += 1
    except errors.EvaluationError as error:
        raise errors.RefusalError(node.at, str(error)) from None
    if used < len(elements):
        raise errors.RefusalError(
            node.at, f"too many arguments supplied to string.format (expected {used}, got {len(elements)})"
        )


def _check_format_argument(node: ast.Node, letter: str, checked: type_checker.CheckedAst) -> None:
    type_: Type = checked.type_of(node)
    if type_ == types.DYN:
        return
    if type_.name not in _FORMATTABLE[letter]:
        raise errors.RefusalError(node.at, f"error during formatting: %{letter} was given {type_}")
    if letter == "s" and isinstance(node, ast.ListLiteral | ast.MapLiteral):
        for part in ast.children(node):
            _check_format_argument(part, letter, checked)


NOT_CONSTANT = object()

CONVERSIONS = frozenset({"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"})


def fold(node: ast.Call, overloads: Sequence[Overload], constants: Sequence[Any]) -> Any:
    """Return the call's constant value, or NOT_CONSTANT. Raises RefusalError when computing it fails."""
    name = overloads[0].name
    if name == "@in" and type(constants[1]) is tuple and not constants[1]:
        return False
    if name not in CONVERSIONS or constants[0] is NOT_CONSTANT:
        return NOT_CONSTANT
    try:
        return convert(overloads, constants[0])
    except errors.EvaluationError as error:
        raise errors.RefusalError(node.at, f"program instantiation failed: {error}") from None


def convert(overloads: Sequence[Overload], value: Any) -> Any:
    """Call the overload that accepts the value."""
    for overload in overloads:
        classes = overload.classes[0]
        if classes is None or type(value) in classes:
            return overload.run(value)
    raise errors.no_such_overload(overloads[0].name)
