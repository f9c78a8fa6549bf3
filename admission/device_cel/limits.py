"""The API server's admission of an expression over `device`: its length, whether it compiles, its static cost.

No API server validates the CEL of Meters and ClaimPolicies, nor of claims that are read from files, so Muster does. The
rules are those of k8s.io/kubernetes pkg/apis/resource/validation (v1.36): length in bytes, then types, then cost.
"""

from admission.cel import limits
from admission.cel.core import size_estimate
from admission.cel.core.errors import CompileError
from admission.cel.cost import static_cost
from admission.cel.front_end import Result
from admission.cel.limits import Inadmissible, Problem
from admission.device_cel import programs
from admission.device_cel.environment import DEFAULT, Profile
from admission.device_cel.programs import Analysis


def check(text: str, *, result: Result = Result.BOOL, profile: Profile = DEFAULT) -> Inadmissible | None:
    """Return why an expression over `device` is rejected, or None if it is admissible."""
    analysis = analyze(text, result=result, profile=profile)
    return analysis if isinstance(analysis, Inadmissible) else None


def analyze(text: str, *, result: Result = Result.BOOL, profile: Profile = DEFAULT) -> Analysis | Inadmissible:
    """Return the analysis of an expression over `device`, or why it is rejected."""
    too_long = limits.check_length(text)
    if too_long is not None:
        return too_long
    analysis = programs.analyze(text, result=result, profile=profile)
    if isinstance(analysis, CompileError):
        return Inadmissible(Problem.COMPILE_ERROR, str(analysis), analysis)
    if analysis.cost > static_cost.LIMIT:
        bound = "without bound" if analysis.cost == size_estimate.MAX else f"{analysis.cost:,}"
        return Inadmissible(
            Problem.TOO_COSTLY,
            f"evaluating it may cost {bound}, the limit is {static_cost.LIMIT:,}; loop over less",
        )
    return analysis
