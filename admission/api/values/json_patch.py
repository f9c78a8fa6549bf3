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
        path = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        obj = _apply_step(obj, path, step)
    return obj


def _apply_step(obj: Any, path: list[str], step: Operation) -> Any:
    """Return a value with one step applied at the end of a path; values on the path are copied, others shared."""
    if not path:
        return step.get("value")
    if isinstance(obj, list):
        return _apply_step_to_list(obj, path, step)
    if not isinstance(obj, Mapping) or (path[0] not in obj and (len(path) > 1 or step["op"] != "add")):
        raise ValueError(f"{step['op']} {step['path']}: there is no such place")
    if len(path) > 1:
        return {**obj, path[0]: _apply_step(obj[path[0]], path[1:], step)}
    if step["op"] == "remove":
        return {key: value for key, value in obj.items() if key != path[0]}
    return {**obj, path[0]: step.get("value")}


def _apply_step_to_list(items: list[Any], path: list[str], step: Operation) -> list[Any]:
    index = len(items) if path[0] == "-" else int(path[0])
    if len(path) > 1:
        return [*items[:index], _apply_step(items[index], path[1:], step), *items[index + 1 :]]
    if step["op"] == "remove":
        return [*items[:index], *items[index + 1 :]]
    return [*items[:index], step.get("value"), *items[index:]]
