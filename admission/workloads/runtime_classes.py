"""What the API server adds to a new pod by its RuntimeClass: overhead, and the nodes that have the runtime.

Mirrors `plugin/pkg/admission/runtimeclass/admission.go` (v1.37.1): setOverhead, validateOverhead and setScheduling.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from admission.api.kubernetes import meta
from admission.api.kubernetes.meta import Meta
from admission.api.values.decoding import Json, Reader
from admission.errors import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeClass:
    """A RuntimeClass. overhead: amounts as written. tolerations: as written."""

    meta: Meta
    overhead: Mapping[str, Any] | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Json, ...] = ()

    @property
    def text(self) -> str:
        """Return what keeps pods off nodes, in words; empty if nothing does."""
        amounts = ", ".join(f"{name} {amount}" for name, amount in sorted((self.overhead or {}).items()))
        labels = ", ".join(f"{key}={value}" for key, value in sorted(self.node_selector.items()))
        parts = (f"overhead {amounts}" if amounts else "", f"node selector {labels}" if labels else "")
        return " and ".join(filter(None, parts))


def decode(obj: Json) -> RuntimeClass:
    """Decode a RuntimeClass. Raises MalformedObjectError."""
    reader = Reader(obj)
    overhead, scheduling = reader.child("overhead"), reader.child("scheduling")
    result = RuntimeClass(
        meta=meta.decode(reader),
        overhead=overhead.child("podFixed").value if "podFixed" in overhead else None,
        node_selector=scheduling.pairs("nodeSelector"),
        tolerations=tuple(one.value for one in scheduling.children("tolerations")),
    )
    reader.finish("RuntimeClass", result.meta.key)
    return result


def completed(spec: Json, runtime_class: RuntimeClass | None) -> Json | Problem:
    """Return the spec of a new pod with what its RuntimeClass adds, or why the API server refuses it.

    runtime_class: None if it names none.
    """
    added: dict[str, Any] = {}
    if runtime_class is None or runtime_class.overhead is None:
        if spec.get("overhead") is not None:
            return Problem("overhead", "is set without a RuntimeClass that defines it: leave it out, or name one")
        if runtime_class is None:
            return spec
    else:
        if spec.get("overhead") not in (None, runtime_class.overhead):
            return Problem("overhead", f"differs from that of RuntimeClass {runtime_class.meta.name}: leave it out")
        added["overhead"] = runtime_class.overhead
    own = spec.get("nodeSelector") or {}
    for key, value in runtime_class.node_selector.items():
        if own.get(key, value) != value:
            name = runtime_class.meta.name
            return Problem(f"nodeSelector[{key}]", f"is {own[key]}, and RuntimeClass {name} has {value}: leave it out")
    if runtime_class.node_selector:
        added["nodeSelector"] = {**own, **runtime_class.node_selector}
    tolerations = spec.get("tolerations") or []
    more = [one for one in runtime_class.tolerations if one not in tolerations]
    if more:
        added["tolerations"] = [*tolerations, *more]
    return {**spec, **added}
