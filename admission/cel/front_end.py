"""The front end of the compiler: source text to a checked tree, whose value has the type that the caller requires."""

from enum import StrEnum

from admission.cel.check import type_checker, validators
from admission.cel.core import ast, errors, types
from admission.cel.environment import Environment
from admission.cel.syntax import parser


class Result(StrEnum):
    """The type that an expression must have."""

    BOOL = "bool"
    """Of a selector."""

    INT = "int"
    """Of a price."""

    STRING = "string"
    """Of a message, or of a value that a rule computes."""


def check(text: str, result: Result | None, environment: Environment) -> tuple[ast.Node, type_checker.CheckedAst]:
    """Parse and check an expression. result: its required type, None for any. Raises RefusalError."""
    root = parser.parse(text, escapes=environment.escapes)
    checked = type_checker.check(root, environment)
    validators.validate(root, checked)
    if result is not None:
        _check_result(checked.type_of(root), result, environment)
    return root, checked


def _check_result(type_: types.Type, result: Result, environment: Environment) -> None:
    if type_.name in (result.value, environment.unknown_result.name):
        return
    if environment.release >= 37 and type_ == types.wrapper_of(types.BOOL) and result is Result.BOOL:
        return
    raise errors.RefusalError(-1, f"must evaluate to {result.value} or the unknown type, not {type_}")
