"""What admission says of the selectors of claims: kept from review to review, since thousands of claims have the same.

Each is compiled once, for its refusal and its warnings. What is kept follows from the text alone, and is far smaller
than the compiled program; its size is bounded in characters, so that selectors cannot fill the memory.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from admission.api.values.work_budget import WorkBudget
from admission.cel import limits as cel_limits
from admission.cel.limits import MAX_BYTES, Inadmissible, Problem
from admission.cel.syntax import lexer
from admission.cel.syntax.lexer import Size
from admission.device_cel import limits, lint
from admission.device_cel.environment import Profile
from admission.device_cel.lint import LintResult

COMPILERS = (Profile(release=37, lists=True), Profile(release=36, lists=True))
"""The compilers of the supported API servers; a selector is refused only if all of them refuse it."""

MAX_CHARACTERS = 1024 * 1024
OVERHEAD = 256
"""Characters that an entry counts for besides its text."""

UNKNOWN = "that Muster does not know"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is known of a selector. size: of what was compiled. refusal: why no API server takes it."""

    size: Size
    refusal: Inadmissible | None = None
    lint_result: LintResult = field(default_factory=LintResult)


class SelectorFindings:
    """The findings by text, those that were asked for last; not shared between threads."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, Finding] = OrderedDict()
        self.characters = 0
        """What is kept, in characters."""

    def find(self, text: str, work: WorkBudget | None = None) -> Finding:
        """Return the finding about a selector. work: is charged, also for a known one, so that answers are the same.

        Raises TooMuchWorkError.
        """
        found = self._found.get(text)
        if found is not None:
            self._found.move_to_end(text)
            if work is not None:
                cel_limits.charge(work, found.size)
            return found
        size = lexer.measure(text) if len(text) <= MAX_BYTES else Size(0)
        if work is not None:
            cel_limits.charge(work, size)
        found = _finding(text, size, work)
        if found.lint_result.complete:
            self._keep(text, found)
        return found

    def _keep(self, text: str, found: Finding) -> None:
        if len(text) > MAX_BYTES:
            return
        self._found[text] = found
        self.characters += len(text) + OVERHEAD
        while self.characters > MAX_CHARACTERS:
            oldest, _ = self._found.popitem(last=False)
            self.characters -= len(oldest) + OVERHEAD


def _finding(text: str, size: Size, work: WorkBudget | None) -> Finding:
    first = limits.analyze(text, profile=COMPILERS[0])
    if not isinstance(first, Inadmissible):
        return Finding(size=size, lint_result=lint.check(first, profile=COMPILERS[0], work=work))
    if first.problem is Problem.TOO_LONG:
        return Finding(size=size, refusal=first)
    if UNKNOWN in first.message:
        return Finding(size=size)
    if work is not None:
        cel_limits.charge(work, size)
    older = limits.check(text, profile=COMPILERS[1])
    return Finding(size=Size(*(2 * part for part in size)), refusal=first if older is not None else None)
