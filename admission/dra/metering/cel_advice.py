"""The fixes, in words, for a Meter's CEL text that does not compile or fails on a device.

Where the fix is not known the message points to the page with examples, since a wrong guess would cost its reader more.
"""

from admission.cel.core.errors import CompileError
from admission.cel.front_end import Result

PAGE = "see docs/concepts.md#meters"

GUARDS = {
    Result.BOOL: f"guard it, as in `has(…) && …`; {PAGE}",
    Result.INT: f"guard it, as in `has(…) ? … : 0`; {PAGE}",
}
"""By result type, the fix for a text that fails on some device."""

_INSTEAD = {
    (Result.INT, "bool"): "write `… ? 1 : 0` around it",
    (Result.INT, "double"): "write `int(…)` around it",
    (Result.INT, "string"): "write a whole number, without quotes",
    (Result.INT, "kubernetes.Quantity"): "write `.asInteger()` after it",
    (Result.BOOL, "int"): "compare it, as in `… > 0`",
    (Result.BOOL, "string"): "compare it, as in `… == 'name'`",
    (Result.BOOL, "kubernetes.Quantity"): "compare it, as in `….compareTo(quantity('80Gi')) >= 0`",
}
"""By the wanted result and the type found instead: the fix."""

_SAID = {
    "ends too early": "finish the expression",
    "token recognition error at: '='": "write `==` to compare",
    "undefined field": "a device has driver, attributes, capacity and allowMultipleAllocations",
}
"""By a part of the error's text: the fix."""


def compile_error(error: CompileError, result: Result) -> str:
    """Return what is wrong with a text, where, and what to write instead."""
    noun = "no price" if result is Result.INT else "no selector"
    return f"is {noun}: {_place(error)}{error.message}; {_fix(error, result)}"


def _place(error: CompileError) -> str:
    if not error.line:
        return ""
    return f"column {error.column}: " if "\n" not in error.text else f"line {error.line}, column {error.column}: "


def _fix(error: CompileError, result: Result) -> str:
    _, _, kind = error.message.rpartition("unknown type, not ")
    found = _INSTEAD.get((result, kind)) or next((fix for said, fix in _SAID.items() if said in error.message), "")
    return f"{found}; {PAGE}" if found else PAGE
