"""Validation of PodGroups of scheduling.k8s.io, in the API server's words.

Mirrors the generated validation of `pkg/apis/scheduling` of Kubernetes (v1alpha2 of v1.36.3, v1beta1 of v1.37.1).
"""

from collections.abc import Sequence

from admission.api.validation import fields
from admission.api.values.decoding import Reader


def validate(reader: Reader) -> None:
    """Judge a PodGroup's policy and the names of its claims."""
    spec = reader.child("spec")
    policy = spec.child("schedulingPolicy")
    _one_of(spec, "schedulingPolicy", policy, ("basic", "gang"))
    if "gang" in policy:
        gang = policy.child("gang")
        if not gang.integer("minCount"):
            gang.problem("minCount", "Required value")
        elif gang.integer("minCount") < 1:
            fields.invalid(gang, "minCount", "must be greater than or equal to 1")
    for at, claim in enumerate(spec.children("resourceClaims")):
        _one_of(spec, f"resourceClaims[{at}]", claim, ("resourceClaimName", "resourceClaimTemplateName"))


def _one_of(reader: Reader, field: str, union: Reader, members: Sequence[str]) -> None:
    """Note a union of which not exactly one member is there."""
    present = [member for member in members if member in union]
    named = ", ".join(f"`{member}`" for member in members)
    if not present:
        reader.problem(field, f"Invalid value: must specify one of: {named}")
    elif len(present) > 1:
        reader.problem(field, f'Invalid value: "{{{", ".join(present)}}}": must specify exactly one of: {named}')
