"""A small applier of JSON patches (RFC 6902): as much as the webhook may answer with."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any


def applied(obj: Any, patch: Iterable[Mapping[str, Any]]) -> Any:
    """Return a changed copy. Raises where the API server would: a missing parent, an index out of range."""
    result = copy.deepcopy(obj)
    for step in patch:
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
        target = result
        for part in parents:
            target = target[int(part)] if isinstance(target, list) else target[part]
        _apply(step, target, last)
    return result


def _apply(step: Mapping[str, Any], target: Any, last: str) -> None:
    match step["op"], target:
        case "add", list():
            target.insert(len(target) if last == "-" else int(last), copy.deepcopy(step["value"]))
        case "add", dict():
            target[last] = copy.deepcopy(step["value"])
        case "remove", dict():
            del target[last]
        case other:
            raise AssertionError(f"{other} is not expected of the webhook")
