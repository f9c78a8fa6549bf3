"""Expressions over the caller's variables, such as a ClaimPolicy's rules: compiled once, evaluated on many values.

Evaluations can share a budget, so that many cheap expressions together cost no more than one expression may.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from admission.cel import environment, limits, programs
from admission.cel.check import type_checker
from admission.cel.core import ast, budget as core_budget, errors
from admission.cel.core.activation import COST, FIRST_VARIABLE, STEPS, Activation, Interpretable
from admission.cel.core.types import Type
from admission.cel.cost import static_cost
from admission.cel.eval import interpreter
from admission.cel.limits import Inadmissible, Problem
from admission.cel.programs import Result

MAX_UNTRACKED_COST = 1_000
"""Expressions whose bound is at most this are charged the bound, which is faster than tracking their cost."""


@dataclass(slots=True)
class Budget:
    """What is left for all evaluations that share it: cost in cel-go's units, and loop steps."""

    cost: int = static_cost.LIMIT
    steps: int = core_budget.STEPS


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A compiled expression. It is stateless: several threads may evaluate it.

    result_type: its static type. names: the variables that it reads, each with the field that is selected from it, as
    in `user.groups`. cost: its static cost, by which the API server would admit it.
    """

    text: str
    result_type: Type
    names: frozenset[str]
    cost: int
    _bound: int = field(repr=False)
    """The cost that each evaluation is charged, or 0 if the cost is tracked."""
    _interpretable: Interpretable = field(repr=False)
    _empty_slots: list[None] = field(repr=False)

    def evaluate(self, values: Sequence[Any], budget: Budget) -> Any:
        """Return the expression's value. values: CEL values of the environment's variables, in their order.

        Subtracts the cost from the budget. Raises EvaluationError, or its subclass AbortError when the budget is spent.
        """
        if self._bound > budget.cost or budget.cost <= 0:
            raise core_budget.exceeded()
        start = static_cost.LIMIT - budget.cost if budget.cost < static_cost.LIMIT else 0
        activation: Activation = [budget.steps, start, *values, *self._empty_slots]
        try:
            return self._interpretable(activation)
        except RecursionError:
            raise errors.EvaluationError("the expression nests too deeply to be evaluated") from None
        finally:
            budget.steps = activation[STEPS]
            budget.cost -= self._bound or activation[COST] - start


def compile_text(
    text: str, environment: environment.Environment, *, result: Result | None = None
) -> Expression | Inadmissible:
    """Compile an expression. result: its required type, None for any. Never raises for an invalid expression."""
    too_long = limits.check_length(text)
    if too_long is not None:
        return too_long
    try:
        root, checked = programs.check(text, result, environment)
        return _expression(text, root, checked, environment)
    except errors.RefusalError as refusal:
        error = errors.compile_error(text, refusal)
    except RecursionError:
        error = errors.compile_error(text, errors.RefusalError(-1, "max recursion depth exceeded"))
    return Inadmissible(Problem.COMPILE_ERROR, str(error), error)


def _expression(
    text: str, root: ast.Node, checked: type_checker.CheckedAst, environment: environment.Environment
) -> Expression:
    bound = static_cost.bound(root, checked, environment)
    tracks_cost = bound > MAX_UNTRACKED_COST
    run, size = interpreter.plan(root, checked, environment, tracks_cost=tracks_cost)
    return Expression(
        text=text,
        result_type=checked.type_of(root),
        names=ast.names(root),
        cost=static_cost.worst_case(root, checked, environment),
        _bound=0 if tracks_cost else bound,
        _interpretable=run,
        _empty_slots=[None] * (size - FIRST_VARIABLE - len(environment.variables)),
    )
