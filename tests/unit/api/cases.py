"""What cases of validation are made of."""

from collections.abc import Mapping
from typing import Any, NamedTuple

Json = dict[str, Any]
LONG = "x" * 64


class Case(NamedTuple):
    """A bad object, and the field that is told."""

    obj: Json
    field: str


def an_object(kind: str, spec: Any, name: str = "good") -> Json:
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def with_(base: Json, changes: Mapping[str, Any]) -> Json:
    """Return a mapping with fields put over it; None takes a field away."""
    return {name: value for name, value in {**base, **changes}.items() if value is not None}
