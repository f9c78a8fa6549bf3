"""The activation: the state of one evaluation, as a list, so that reading a variable is one index.

The first slots hold the steps that are left and the cost so far. The environment's variables follow, then those of
comprehensions and bindings, each with a slot of its own.
"""

from collections.abc import Callable
from typing import Any

from admission.cel.core import budget

Activation = list[Any]
Interpretable = Callable[[Activation], Any]
"""A planned node: the closure that evaluates it. Raises EvaluationError."""

STEPS = 0
COST = 1
"""Not counted by programs whose static cost proves that it stays far below the limit."""
FIRST_VARIABLE = 2


def charge_steps(activation: Activation, count: int) -> None:
    """Subtract from the steps that are left. Raises AbortError when there are too few."""
    activation[STEPS] -= count
    if activation[STEPS] < 0:
        raise budget.exceeded()
