"""Whether the claims that the mutating half has put into a new pod are still there when the validating half judges it.

Other mutating webhooks come after Muster's. One that puts back a copy of the containers that it kept takes out the
claims with it, and the pod would run without the devices that its author asked for, charged with none.
"""

from admission.api.values import names
from admission.api.values.decoding import Json
from admission.api.values.reasons import Denial, DenyReason
from admission.claimpolicy.draft import Draft
from admission.claimpolicy.pods import claims_annotation, extended_resources
from admission.podpolicy.admission import TRY_AGAIN
from admission.podpolicy.pod_view import PodView


def may_matter(new_pod: PodView) -> bool:
    """Whether a pod says that it has such claims. Most do not, and need not be looked at as a whole."""
    return not new_pod.node and not new_pod.annotations.keys().isdisjoint((names.CLAIMS, names.CONVERTED))


def denial(new_pod: PodView, pod: Json) -> Denial | None:
    """Refuse a pod without the claims of its annotations. pod: the whole of it."""
    draft = Draft(pod)
    for recipe in extended_resources.recipes(new_pod.annotations):
        if not extended_resources.is_kept(draft, recipe):
            made = f"a claim from ResourceClaimTemplate {recipe.template} in place of {recipe.resource}"
            return _lost(names.CONVERTED, made)
    text = new_pod.annotations.get(names.CLAIMS)
    # Where no queue shows all pods, the annotation may be one that nobody follows.
    if not text or not new_pod.queue:
        return None
    refused = claims_annotation.attach(draft, text)
    return refused or (_lost(names.CLAIMS, f"the claims {text!r}") if draft.patch else None)


def _lost(key: str, claims: str) -> Denial:
    return Denial(
        DenyReason.GATE_TAMPERING,
        f"annotation {key} says that the pod has {claims}, and a container of it does not; {TRY_AGAIN}",
        {"key": key},
    )
