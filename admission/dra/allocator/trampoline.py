"""Steps of a search as generators: each yields the next one and is sent its answer.

A pod with thousands of devices does not need as many frames of Python's stack in this way, and a search can be looked
at half-way.
"""

from collections.abc import Generator
from enum import Enum

from admission.dra.requests.requests import Refusal


class Full(Enum):
    """A claim would hold too many devices; other devices of the same number cannot help."""

    FULL = "full"


class Halt(Enum):
    """What a step yields to have its search looked at where it is; it is sent False, to go on."""

    FOUND = "found"


Answered = bool | Full | Refusal
Step = Generator["Step | Halt", Answered, Answered]


def run(first: Step) -> Answered:
    """Run a step with all the steps that it yields, each getting the answer of its own."""
    halts = runs(first)
    while True:
        try:
            next(halts)
        except StopIteration as done:
            answer: Answered = done.value
            return answer


def runs(first: Step) -> Generator[None, None, Answered]:
    """Do the same, and yield whenever a step wants to be looked at."""
    stack = [first]
    answer: Answered = False
    fresh = True
    while stack:
        try:
            child = next(stack[-1]) if fresh else stack[-1].send(answer)
        except StopIteration as done:
            stack.pop()
            answer, fresh = done.value, False
        else:
            fresh = not isinstance(child, Halt)
            if isinstance(child, Halt):
                yield
                answer = False
            else:
                stack.append(child)
    return answer
