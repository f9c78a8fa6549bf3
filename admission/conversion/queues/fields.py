"""Fields of other systems' objects: read, taken out once they are converted, and those that are left."""

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from admission.api.values import names
from admission.conversion.equivalents import Object
from admission.conversion.findings import Findings

NAMESPACE = "kubernetes.io/metadata.name"
"""The label by which a selector names a namespace."""


@dataclass(frozen=True, slots=True)
class Converted:
    """Muster's objects, and what was found of each object of the input, in their order."""

    objects: tuple[Object, ...]
    findings: tuple[Findings, ...]


def new_object(kind: str, name: str, spec: Object) -> Object:
    """Return an object of Muster's API."""
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def name(obj: Mapping[str, Any], key: str = "name") -> str:
    """Return an object's name, or another text of its metadata; empty if it has none."""
    metadata = obj.get("metadata")
    return str(metadata.get(key) or "") if isinstance(metadata, Mapping) else ""


def items(value: Any) -> list[Object]:
    """Return the mappings of a list; nothing of what is none."""
    return [one for one in value if isinstance(one, MutableMapping)] if isinstance(value, list) else []


def parents_first(queues: Mapping[str, Object]) -> list[Object]:
    """Return Queues, given by name, each behind those above it, and by name. A circle is in some order."""
    return sorted(queues.values(), key=lambda queue: (_level(queue, queues), queue["metadata"]["name"]))


def _level(queue: Object, queues: Mapping[str, Object]) -> int:
    """Return how many queues are above one; a circle ends after as many as there are."""
    level, parent = 0, queue["spec"].get("parent")
    while parent in queues and level < len(queues):
        level, parent = level + 1, queues[parent]["spec"].get("parent")
    return level


def get(value: Any, *path: str) -> Any:
    """Return a field of nested mappings."""
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def pop(value: Any, *path: str) -> Any:
    """Take a field out of nested mappings."""
    owner = get(value, *path[:-1])
    return owner.pop(path[-1], None) if isinstance(owner, MutableMapping) else None


def leaves(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of the fields that are not converted, without those that are empty."""
    if isinstance(value, Mapping) and value:
        for step, inner in value.items():
            yield from leaves(inner, f"{path}.{step}".removeprefix("."))
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        for at, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{at}]")
    elif value not in (None, {}, []):
        yield path
