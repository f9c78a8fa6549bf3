"""Warnings about a new claim's selectors that are admitted but do not do what they seem to.

Admission does not know the devices, so no warning depends on them; `muster lint` finds more.
"""

from collections.abc import Iterator, Mapping

from admission.api.kubernetes.devices import DeviceClass
from admission.device_cel.lint import LintRule, LintWarning
from admission.device_cel.selector_findings import SelectorFindings
from admission.podpolicy.known_claims import KnownClaim


def warnings(claim: KnownClaim, classes: Mapping[str, DeviceClass], selectors: SelectorFindings) -> tuple[str, ...]:
    """Return the warnings about a claim's selectors, each with the corrected expression if it is known.

    The work was charged when the selectors were compiled for their refusal.
    """
    return tuple(dict.fromkeys(_lint(claim, classes, selectors)))


def _lint(claim: KnownClaim, classes: Mapping[str, DeviceClass], selectors: SelectorFindings) -> Iterator[str]:
    for request in claim.spec.requests:
        for alternative in request.alternatives:
            device_class = classes.get(alternative.device_class)
            name = f"{request.name}/{alternative.name}" if request.first_available else request.name
            before = device_class.selectors if device_class is not None else ()
            guarded = not all(selectors.find(text).lint_result.admits_foreign for text in before)
            for index, text in enumerate(alternative.selectors):
                lint_result = selectors.find(text).lint_result
                for lint_warning in lint_result.warnings(guarded=guarded):
                    # A class that does not exist yet may guard the look-up, by excluding the devices of other drivers.
                    if lint_warning.rule is LintRule.ALWAYS_TRUE or (
                        lint_warning.rule is LintRule.UNGUARDED_LOOKUP and device_class
                    ):
                        yield f"muster: request {name}, selectors[{index}], {_message(lint_warning)}"
                guarded = guarded or not lint_result.admits_foreign


def _message(lint_warning: LintWarning) -> str:
    """Return a short message with the correction first: the API server may cut a warning off after 256 characters."""
    at = f"line {lint_warning.line}, column {lint_warning.column}"
    if lint_warning.rule is LintRule.UNGUARDED_LOOKUP and lint_warning.instead:
        return f"{at}: a look-up without a guard keeps the pod from being scheduled; write: {lint_warning.instead}"
    return f"{at}: {lint_warning.message}"
