"""The API server's admission of an expression: its length, whether it compiles, its static cost.

No API server validates the CEL of Meters and ClaimPolicies, nor of claims that are read from files, so Muster does. The
rules are those of k8s.io/kubernetes pkg/apis/resource/validation (v1.36): length in bytes, then types, then cost.
"""

from dataclasses import dataclass
from enum import StrEnum

from admission.cel import environment, programs
from admission.cel.core import size_estimate
from admission.cel.cost import static_cost
from admission.cel.programs import CompileError, Result

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


def check(
    text: str, *, result: Result = Result.BOOL, profile: environment.Profile = environment.DEFAULT
) -> Inadmissible | None:
    """Return why an expression over `device` is rejected, or None if it is admissible."""
    too_long = check_length(text)
    if too_long is not None:
        return too_long
    cost = programs.static_cost(text, result=result, profile=profile)
    if isinstance(cost, CompileError):
        return Inadmissible(Problem.COMPILE_ERROR, str(cost), cost)
    if cost > static_cost.LIMIT:
        bound = "without bound" if cost == size_estimate.MAX else f"{cost:,}"
        return Inadmissible(
            Problem.TOO_COSTLY,
            f"evaluating it may cost {bound}, the limit is {static_cost.LIMIT:,}; loop over less",
        )
    return None


def check_length(text: str) -> Inadmissible | None:
    """Return why an expression is rejected for its length, or None. Needs no parsing."""
    byte_count = len(text.encode(errors="surrogatepass"))
    if byte_count <= MAX_BYTES:
        return None
    return Inadmissible(Problem.TOO_LONG, f"it has {byte_count:,} bytes, the limit is {MAX_BYTES:,}")
