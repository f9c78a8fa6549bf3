"""Declarations of operators: equality, ordering, membership, index, condition.

Index and condition are declared for the type checker only: `eval.interpreter` implements them, since it controls the
evaluation of their operands.
"""

from typing import Any

from admission.cel.core import equality
from admission.cel.core.declarations import Implementation, Overload, function


def _planned(*_: Any) -> Any:
    raise AssertionError("planned by the interpreter")


_NUMBERS = ("int", "uint", "double")
_ORDERED = ("bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration")


def _ordering(name: str, run: Implementation) -> list[Overload]:
    pairs = [(kind, kind) for kind in _ORDERED]
    pairs += [(left, right) for left in _NUMBERS for right in _NUMBERS if left != right]
    return [function(name, f"{left}, {right} -> bool", run) for left, right in pairs]


OVERLOADS: tuple[Overload, ...] = (
    function("_==_", "A, A -> bool", equality.equal),
    function("_!=_", "A, A -> bool", equality.unequal),
    *_ordering("_<_", lambda a, b: equality.compare(a, b) < 0),
    *_ordering("_<=_", lambda a, b: equality.compare(a, b) <= 0),
    *_ordering("_>_", lambda a, b: equality.compare(a, b) > 0),
    *_ordering("_>=_", lambda a, b: equality.compare(a, b) >= 0),
    function("@in", "A, list(A) -> bool", equality.contains),
    function("@in", "A, map(A, B) -> bool", equality.contains),
    function("!_", "bool -> bool", lambda a: not a),
    function("_?_:_", "bool, A, A -> A", _planned),
    function("_[_]", "list(A), int -> A", _planned),
    function("_[_]", "map(A, B), A -> B", _planned),
    function("_[_]", "optional(list(V)), int -> optional(V)", _planned),
    function("_[_]", "optional(map(K, V)), K -> optional(V)", _planned),
    function("_[?_]", "list(V), int -> optional(V)", _planned),
    function("_[?_]", "optional(list(V)), int -> optional(V)", _planned),
    function("_[?_]", "map(K, V), K -> optional(V)", _planned),
    function("_[?_]", "optional(map(K, V)), K -> optional(V)", _planned),
)
