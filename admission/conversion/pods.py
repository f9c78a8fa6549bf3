"""The claims of pods as earlier releases wrote them, in pods and in the pod templates of any kind.

`source:` went away in 1.31. `resourceClaimTemplates` never was a field of pods, though manifests have it: a template is
an object of its own.
"""

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

from admission.conversion import equivalents
from admission.conversion.equivalents import Object, items
from admission.conversion.findings import Findings

DEEPEST = 40
"""Levels of an object in which pod templates are looked for; a CRD's schema has far fewer."""

_NAMES = ("resourceClaimName", "resourceClaimTemplateName")
INLINE = "resourceClaimTemplates"


def pod_specs(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Object]]:
    """Yield the pod specs within an object, each with its path: whatever has a list of containers."""
    if depth > DEEPEST:
        return
    if isinstance(value, list):
        for at, one in enumerate(value):
            yield from pod_specs(one, f"{path}[{at}]", depth + 1)
    elif isinstance(value, MutableMapping):
        if isinstance(value.get("containers"), list):
            yield path, value
            return
        for name, one in value.items():
            yield from pod_specs(one, f"{path}.{name}".removeprefix("."), depth + 1)


@dataclass(frozen=True, slots=True)
class InlineTemplate:
    """A ResourceClaimTemplate that stood in a pod template. path: of its claim's spec, as it was read."""

    body: Object
    path: str


def upgrade(obj: Object, findings: Findings) -> list[InlineTemplate]:
    """Change the claims of all pods of an object. Returns the ResourceClaimTemplates that its pod templates had."""
    templates: list[InlineTemplate] = []
    metadata = obj.get("metadata")
    namespace = metadata.get("namespace") if isinstance(metadata, MutableMapping) else None
    for path, spec in pod_specs(obj):
        for place, claim in items(spec, "resourceClaims", path):
            _flatten_source(claim, place, findings)
        templates += _own_templates(spec, path, namespace, findings)
    return templates


def _flatten_source(claim: Object, path: str, findings: Findings) -> None:
    source = claim.get("source")
    if not isinstance(source, MutableMapping):
        return
    if any(claim.get(name) for name in _NAMES) or not set(source) <= set(_NAMES):
        findings.left(f"{path}.source", f"went away in 1.31: write {' or '.join(_NAMES)} beside the claim's name")
        return
    del claim["source"]
    claim.update(source)
    findings.changed(f"{path}.source", f"{' and '.join(source) or 'what it has'} stands beside the claim's name")


def _own_templates(spec: Object, path: str, namespace: Any, findings: Findings) -> list[InlineTemplate]:
    """Take the claim templates out of a pod spec, and name them in its claims."""
    field = f"{path}.{INLINE}"
    inline = spec.get(INLINE)
    if not isinstance(inline, list) or not isinstance(spec.get("resourceClaims", []), list):
        return []
    made = [
        found
        for at, one in enumerate(inline)
        if (found := _template(one, f"{field}[{at}].spec", namespace)) is not None
    ]
    if len(made) < len(inline):
        findings.left(field, "is no field of pods: make a ResourceClaimTemplate of each, with a name and a spec")
        return []
    del spec[INLINE]
    claims = spec.setdefault("resourceClaims", [])
    for at, template in enumerate(made):
        name = template.body["metadata"]["name"]
        if all(claim.get("name") != name for _, claim in items(spec, "resourceClaims", path)):
            claims.append({"name": name, "resourceClaimTemplateName": name})
        message = f"is an object of its own, ResourceClaimTemplate {name}, named by resourceClaimTemplateName"
        findings.changed(f"{field}[{at}]", message)
    return made


def _template(inline: Any, path: str, namespace: Any) -> InlineTemplate | None:
    """Return the template that an element of `resourceClaimTemplates` describes; None if that is not clear."""
    metadata = inline.get("metadata") if isinstance(inline, MutableMapping) else None
    spec = inline.get("spec") if isinstance(inline, MutableMapping) else None
    if not isinstance(metadata, MutableMapping) or not isinstance(spec, MutableMapping) or not metadata.get("name"):
        return None
    is_claims = "devices" in spec
    placed = {**metadata, **({"namespace": namespace} if namespace and "namespace" not in metadata else {})}
    body = {
        "apiVersion": equivalents.VERSION,
        "kind": "ResourceClaimTemplate",
        "metadata": placed,
        "spec": {"spec": spec} if is_claims else spec,
    }
    return InlineTemplate(body, path if is_claims else f"{path}.spec")
