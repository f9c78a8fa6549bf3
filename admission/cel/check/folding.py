"""What cel-go computes while it builds a program, so that a failure is an error of the text.

Conversions of constants (interpreter/decorators.go, maybeOptimizeConstUnary), regular expressions, durations,
timestamps and the arguments of `format` written as literals.
"""

from collections.abc import Sequence
from typing import Any

from admission.cel.core import ast, errors
from admission.cel.core.declarations import Overload

NOT_CONSTANT = object()

CONVERSIONS = frozenset({"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"})


def fold(node: ast.Call, overloads: Sequence[Overload], constants: Sequence[Any]) -> Any:
    """Return the call's value if it is known already. Raises RefusalError when computing it fails."""
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
    """Call the overload that takes the value."""
    for overload in overloads:
        classes = overload.classes[0]
        if classes is None or type(value) in classes:
            return overload.run(value)
    raise errors.no_such_overload(overloads[0].name)
