"""The state of one evaluation: a list, so that reading a variable is one index.

The first places hold the steps that are left and the cost so far, then come the environment's variables, then those of
comprehensions and bindings, each with a place of its own.
"""

from collections.abc import Callable
from typing import Any

from admission.cel.core import budget

Frame = list[Any]
Run = Callable[[Frame], Any]

STEPS = 0
COST = 1
"""Counted only by programs whose static cost does not prove that it stays far below the limit."""
FIRST_VARIABLE = 2


def step(frame: Frame, count: int = 1) -> None:
    """Count turns of a loop."""
    frame[STEPS] -= count
    if frame[STEPS] < 0:
        raise budget.exceeded()
