"""Check that the claims which the mutating webhook added to a new pod are still there at its validation.

Other mutating webhooks run after Muster's. One that restores its own copy of the containers removes the claims, and the
pod would run without the devices that its author asked for, and without a charge.
"""

from admission.api.values import names
from admission.api.values.decoding import Json
from admission.api.values.reasons import Denial, DenyReason
from admission.api.values.work_budget import WorkBudget
from admission.claimpolicy import conversion_recipe
from admission.claimpolicy.draft import Draft
from admission.claimpolicy.pods import claims_annotation, extended_resources
from admission.podpolicy.admission import TRY_AGAIN
from admission.podpolicy.pod_view import PodView

LONGEST_TEXT = 200
"""Characters of an annotation in a message."""


def may_matter(new_pod: PodView) -> bool:
    """Whether a pod has an annotation of such claims. Most pods have none, and their JSON need not be read."""
    return not new_pod.node and not new_pod.annotations.keys().isdisjoint((names.CLAIMS, names.CONVERTED))


def denial(new_pod: PodView, pod: Json, work: WorkBudget | None = None) -> Denial | None:
    """Refuse a pod without the claims of its annotations. pod: its whole JSON."""
    draft = Draft(pod, work)
    for recipe in conversion_recipe.recipes(new_pod.annotations):
        if not extended_resources.is_kept(draft, recipe):
            claim_text = f"a claim from ResourceClaimTemplate {recipe.template} in place of {recipe.resource}"
            return _claims_removed(names.CONVERTED, claim_text)
    text = new_pod.annotations.get(names.CLAIMS)
    # The mutating webhook need not have been called for a pod without a queue, so its annotation need not have been
    # followed.
    if not text or not new_pod.queue:
        return None
    refusal = claims_annotation.attach(draft, text)
    return refusal or (_claims_removed(names.CLAIMS, f"the claims {text[:LONGEST_TEXT]!r}") if draft.patch else None)


def _claims_removed(key: str, claims: str) -> Denial:
    return Denial(
        DenyReason.GATE_TAMPERING,
        f"annotation {key} says that the pod has {claims}, and a container of it does not; {TRY_AGAIN}",
        {"key": key},
    )
