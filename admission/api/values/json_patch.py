"""JSON patches (RFC 6902), for the API server and admission responses."""

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
    """Yield the steps that add labels or annotations, with the mapping if it is absent; none for pairs that exist."""
    wanted = {key: value for key, value in pairs.items() if (existing or {}).get(key) != value}
    if existing is None and wanted:
        yield add(path, dict(wanted))
        return
    for key, value in wanted.items():
        yield add(f"{path}{pointer(key)}", value)


def apply(obj: Any, patch: Iterable[Operation]) -> Any:
    """Return an object with a patch applied, without changing the given one. Raises ValueError for an invalid step.

    Only the operations that Muster writes are supported: `add` and `remove`.
    """
    for step in patch:
        way = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        obj = _changed(obj, way, step)
    return obj


def _changed(obj: Any, way: list[str], step: Operation) -> Any:
    """Return a value with one step applied at the end of a path; values on the path are copied, others shared."""
    if not way:
        return step.get("value")
    if isinstance(obj, list):
        return _changed_list(obj, way, step)
    if not isinstance(obj, Mapping) or (way[0] not in obj and (len(way) > 1 or step["op"] != "add")):
        raise ValueError(f"{step['op']} {step['path']}: there is no such place")
    if len(way) > 1:
        return {**obj, way[0]: _changed(obj[way[0]], way[1:], step)}
    if step["op"] == "remove":
        return {key: value for key, value in obj.items() if key != way[0]}
    return {**obj, way[0]: step.get("value")}


def _changed_list(found: list[Any], way: list[str], step: Operation) -> list[Any]:
    index = len(found) if way[0] == "-" else int(way[0])
    if len(way) > 1:
        return [*found[:index], _changed(found[index], way[1:], step), *found[index + 1 :]]
    if step["op"] == "remove":
        return [*found[:index], *found[index + 1 :]]
    return [*found[:index], step.get("value"), *found[index:]]
