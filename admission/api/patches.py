"""JSON patches (RFC 6902), as the API server and admission responses take them."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NotRequired, TypedDict


class Operation(TypedDict):
    """One step of a JSON patch."""

    op: Literal["add", "remove", "replace", "test"]
    path: str
    value: NotRequired[Any]


Patch = tuple[Operation, ...]


def pointer(*parts: str | int) -> str:
    """Return a JSON pointer (RFC 6901) to a field."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def add(path: str, value: Any) -> Operation:
    return {"op": "add", "path": path, "value": value}


def remove(path: str) -> Operation:
    return {"op": "remove", "path": path}


def set_pairs(path: str, existing: Mapping[str, str] | None, pairs: Mapping[str, str]) -> Iterable[Operation]:
    """Yield what adds labels or annotations, making the mapping when it is absent; nothing that is there already."""
    wanted = {key: value for key, value in pairs.items() if (existing or {}).get(key) != value}
    if existing is None and wanted:
        yield add(path, dict(wanted))
        return
    for key, value in wanted.items():
        yield add(f"{path}{pointer(key)}", value)
