"""Attributes of devices without types, which were never valid: `memory: "24GB"`, `model: H100`, `{quantity: 80Gi}`.

A size becomes a capacity, since attributes have no amounts; a number, a truth value or a text gets its type.
"""

import re
from collections.abc import MutableMapping
from typing import Any

from admission.conversion.equivalents import Object
from admission.conversion.findings import Findings

_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[KMGTPE]i?)B?")
_LISTS = frozenset({"intSlice", "stringSlice"})
_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")


def upgrade(device: Object, path: str, findings: Findings) -> None:
    """Give each attribute of a device its type. path: of the mapping that has the attributes, as it was read."""
    attributes = device.get("attributes")
    if not isinstance(attributes, MutableMapping):
        return
    sizes: dict[str, Any] = {}
    for name, value in [*attributes.items()]:
        place = f"{path}.attributes[{name}]"
        size = _size(value)
        if size is not None:
            sizes[name] = {"value": size}
            del attributes[name]
            findings.check(place, f"is taken for a size, and stands in capacity: {{value: {size}}}")
        elif isinstance(value, MutableMapping) and not _LISTS.isdisjoint(value):
            findings.left(
                place, "a list is written {ints: […]} or {strings: […]}, where the gate DRAListTypeAttributes is on"
            )
        elif not isinstance(value, MutableMapping | list) and value is not None:
            attributes[name] = _typed(value)
            kind = next(iter(attributes[name]))
            findings.changed(place, f"has its type: {{{kind}: {value}}}")
    if sizes:
        capacity = device.get("capacity")
        kept = capacity if isinstance(capacity, MutableMapping) else {}
        device["capacity"] = {**sizes, **kept}
    if not attributes:
        del device["attributes"]


def _size(value: Any) -> str | None:
    """Return a size as a quantity, or None for what is none. `24GB` is 24G."""
    if isinstance(value, MutableMapping) and set(value) == {"quantity"}:
        return str(value["quantity"])
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    # Kubernetes' suffix of a thousand is the small letter.
    return f"{found['number']}{'k' if found['unit'] == 'K' else found['unit']}" if found is not None else None


def _typed(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        return {"int": value}
    text = str(value)
    return {"version": text} if _VERSION.fullmatch(text) else {"string": text}
