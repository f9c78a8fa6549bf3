"""The trampoline of a search: steps are generators that yield the next step and are sent its answer.

So a pod with thousands of devices does not need as many frames of Python's stack, and a search can stop at each
solution and go on.
"""

from collections.abc import Generator
from enum import Enum

from admission.dra.requests.requests import RequestRefusal


class Full(Enum):
    """A claim would hold too many devices; other devices in the same number would be too many as well."""

    FULL = "full"


class Halt(Enum):
    """What a step yields to hand the state of its search to the caller; it is then sent False, to go on."""

    FOUND = "found"


Answered = bool | Full | RequestRefusal
Step = Generator["Step | Halt", Answered, Answered]


def run(first: Step) -> Answered:
    """Run a step and all steps that it yields, sending each step the answer of the one it yielded."""
    halts = runs(first)
    while True:
        try:
            next(halts)
        except StopIteration as done:
            answer: Answered = done.value
            return answer


def runs(first: Step) -> Generator[None, None, Answered]:
    """Do as `run`, and yield whenever a step yields Halt."""
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
