"""The state of one evaluation: a list, so that reading a variable is one index.

The first places hold the environment's variables, then come the steps that are left, then the variables of
comprehensions and bindings, each with a place of its own.
"""

from collections.abc import Callable
from typing import Any

from admission.dra.cel import budgets

Frame = list[Any]
Run = Callable[[Frame], Any]

STEPS = 0
FIRST_VARIABLE = 1


def step(frame: Frame) -> None:
    """Count one turn of a loop."""
    frame[STEPS] -= 1
    if frame[STEPS] < 0:
        raise budgets.exceeded()
