"""PriorityClasses, from which the API server sets the priority of new pods."""

from dataclasses import dataclass

from admission.api.kubernetes import meta
from admission.api.kubernetes.meta import Meta
from admission.api.values.decoding import Json, Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    """A PriorityClass. is_default: whether it applies to pods that name none."""

    meta: Meta
    value: int
    is_default: bool = False


def decode(obj: Json) -> PriorityClass:
    """Decode a PriorityClass."""
    reader = Reader(obj)
    found = PriorityClass(
        meta=meta.decode(reader), value=reader.integer("value"), is_default=reader.flag("globalDefault")
    )
    reader.finish("PriorityClass", found.meta.name)
    return found
