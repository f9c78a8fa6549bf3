"""Why an expression is inadmissible to the API server: its length, an error of the compiler, its static cost."""

from dataclasses import dataclass
from enum import StrEnum

from admission.api.values.work_budget import Work, WorkBudget
from admission.cel.core.errors import CompileError
from admission.cel.syntax.lexer import Size

MAX_BYTES = 10_240
"""The longest expression that Kubernetes accepts (resource.k8s.io CELSelectorExpressionMaxLength)."""


class Problem(StrEnum):
    """Why an expression is rejected."""

    TOO_LONG = "too long"
    COMPILE_ERROR = "compile error"
    TOO_COSTLY = "too costly"


@dataclass(frozen=True, slots=True)
class Inadmissible:
    """A rejected expression. error: where and why it does not compile, if that is the problem."""

    problem: Problem
    message: str
    error: CompileError | None = None

    def __str__(self) -> str:
        return f"{self.problem}: {self.message}"


def charge(work: WorkBudget, size: Size) -> None:
    """Charge a review for compiling an expression. Raises TooMuchWorkError."""
    work.charge(Work.TOKEN, size.tokens)
    if size.patterns:
        work.charge(Work.PATTERN, size.patterns)
        work.charge(Work.LARGE_PATTERN, size.large_patterns)


def check_length(text: str) -> Inadmissible | None:
    """Return why an expression is rejected for its length, or None. Needs no parsing."""
    byte_count = len(text.encode(errors="surrogatepass"))
    if byte_count <= MAX_BYTES:
        return None
    return Inadmissible(Problem.TOO_LONG, f"it has {byte_count:,} bytes, the limit is {MAX_BYTES:,}")
