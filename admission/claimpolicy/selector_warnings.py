"""Warnings about a new claim's selectors that are admitted but do not do what they seem to.

Admission does not know the devices, so no warning depends on them; `muster lint` finds more.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache

from admission.api.kubernetes.devices import DeviceClass
from admission.cel import lint
from admission.cel.environment import Profile
from admission.cel.lint import LintRule, LintWarning
from admission.podpolicy.admission import KnownClaim

COMPILER = Profile(release=37)


def warnings(claim: KnownClaim, classes: Mapping[str, DeviceClass]) -> tuple[str, ...]:
    """Return the warnings about a claim's selectors, each with the corrected expression if it is known."""
    return tuple(dict.fromkeys(_found(claim, classes)))


def _found(claim: KnownClaim, classes: Mapping[str, DeviceClass]) -> Iterator[str]:
    for request in claim.spec.requests:
        for asked in request.alternatives:
            known = classes.get(asked.device_class)
            name = f"{request.name}/{asked.name}" if request.first_available else request.name
            before = known.selectors if known is not None else ()
            for index, text in enumerate(asked.selectors):
                for trap in _warnings(text, before):
                    # A class that does not exist yet may guard the look-up, by excluding the devices of other drivers.
                    if trap.rule is LintRule.ALWAYS_TRUE or (trap.rule is LintRule.UNGUARDED_LOOKUP and known):
                        yield f"muster: request {name}, selectors[{index}], {_said(trap)}"
                before = (*before, text)


@lru_cache(maxsize=1024)
def _warnings(text: str, before: tuple[str, ...]) -> tuple[LintWarning, ...]:
    """Return the lint warnings of a selector. Cached, since thousands of claims have the same selectors."""
    return lint.find(text, before=before, profile=COMPILER)


def _said(trap: LintWarning) -> str:
    """Return a short message with the correction first: the API server may cut a warning off after 256 characters."""
    at = f"line {trap.line}, column {trap.column}"
    if trap.rule is LintRule.UNGUARDED_LOOKUP and trap.instead:
        return f"{at}: a look-up without a guard keeps the pod from being scheduled; write: {trap.instead}"
    return f"{at}: {trap.message}"
