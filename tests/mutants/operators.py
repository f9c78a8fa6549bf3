"""The mutation operators in use: cosmic-ray's that turn a decision, and two that it lacks.

cosmic-ray replaces every operator by every other one. Of these, only the ones that a person could have mistyped are
used: a bound moved by one, a comparison reversed or negated, a sum turned into a difference. Numbers are not replaced:
bounds are moved by turning their comparisons, and of the others most mean nothing (a counter that is only compared, the
key of a cache, a size); 25 of 48 were not noticed, 17 of them because no test could.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from cosmic_ray import plugins
from cosmic_ray.operators.operator import Operator

_COMPARISONS = ("Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is")
_ORDERS = ("Lt_LtE", "Lt_Gt", "LtE_Lt", "LtE_GtE", "Gt_GtE", "Gt_Lt", "GtE_Gt", "GtE_LtE")
_SUMS = ("Add_Sub", "Sub_Add", "Mul_FloorDiv", "FloorDiv_Mul", "Div_Mul", "Mod_FloorDiv", "Pow_Mul")
_BITS = ("BitOr_BitAnd", "BitAnd_BitOr", "BitXor_BitAnd", "LShift_RShift", "RShift_LShift")
_NAMES = (
    *(f"ReplaceComparisonOperator_{turn}" for turn in (*_COMPARISONS, *_ORDERS)),
    *(f"ReplaceBinaryOperator_{turn}" for turn in (*_SUMS, *_BITS)),
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_Delete_USub",
    "AddNot",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "ZeroIterationForLoop",
    "ExceptionReplacer",
)

NEGATING = {"AddNot", "NegateFilter"}
"""Those that put a `not` in front of a condition."""

Position = tuple[int, int]
"""A line, from 1, and a column, from 0, in characters."""


class ReverseMembership(Operator):  # type: ignore[misc]  # cosmic-ray has no types
    """Replaces `in` by `not in`, and the reverse, in comparisons."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Position, Position]]:
        if node.type == "comparison":
            yield from ((word.start_pos, word.end_pos) for word in self._words(node))

    def mutate(self, node: Any, index: int) -> Any:
        word = list(self._words(node))[index]
        if word.type == "comp_op":
            word.children = word.children[1:]
        else:
            word.value = "not in"
        return node

    def _words(self, node: Any) -> Iterator[Any]:
        return (word for word in node.children[1::2] if word.get_code().split() in (["in"], ["not", "in"]))

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        return ()


class NegateFilter(Operator):  # type: ignore[misc]  # cosmic-ray has no types
    """Negates the condition of a comprehension; AddNot does so only for statements and conditional expressions."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Position, Position]]:
        if node.type == "comp_if":
            yield node.children[1].start_pos, node.children[1].end_pos

    def mutate(self, node: Any, index: int) -> Any:
        assert index == 0
        node.children[0].value = "if not"
        return node

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        return ()


@cache
def by_name() -> Mapping[str, Operator]:
    """Return an instance of each operator in use."""
    theirs = {name: plugins.get_operator(f"core/{name}")() for name in _NAMES}
    return theirs | {kind.__name__: kind() for kind in (ReverseMembership, NegateFilter)}
