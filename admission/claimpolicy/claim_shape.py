"""What the API server would refuse of a claim's shape and size, found before anything is done with it.

The API server calls the mutating webhook before it validates, and a client that calls the webhook itself is never
validated. The limits are those of k8s.io/api/resource/v1 (v0.37).
"""

from collections.abc import Iterator
from typing import Any

from admission.api.values import decoding
from admission.api.values.decoding import Json
from admission.errors import MalformedObjectError, Problem

MAX_ITEMS = {
    "requests": 32,
    "constraints": 32,
    "config": 32,
    "firstAvailable": 8,
    "selectors": 32,
    "tolerations": 16,
}
"""The most entries of a list, by its field."""

LONGEST_NAME = 253
"""Characters of the longest name, of a class."""

MAX_AMOUNTS = 32
"""The most capacities that a request names."""


def check(obj: Json, kind: str, name: str, *, template: bool) -> int:
    """Return the number of requests and alternatives of a claim or a template. Raises MalformedObjectError."""
    shape = _Shape()
    devices, path = shape.devices(obj, template=template)
    count = 0
    for index, request in enumerate(shape.objects(devices, "requests", path)):
        count += shape.request(request, f"{path}.requests[{index}]")
    for field in ("constraints", "config"):
        shape.objects(devices, field, path)
    if shape.problems:
        raise MalformedObjectError(kind, name, tuple(shape.problems[: decoding.MAX_PROBLEMS]))
    return count


class _Shape:
    """Looks at one claim, and notes what is wrong with it."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def devices(self, obj: Json, *, template: bool) -> tuple[Json, str]:
        """Return `devices` of the claim, or of the claims that a template makes, and their path."""
        self._metadata(obj, "")
        spec, path = self._object(obj, "spec", ""), "spec."
        if template:
            self._metadata(spec, path)
            spec, path = self._object(spec, "spec", path), "spec.spec."
        return self._object(spec, "devices", path), f"{path}devices"

    def _metadata(self, holder: Json, path: str) -> None:
        metadata = self._object(holder, "metadata", path)
        for field in ("labels", "annotations"):
            self._object(metadata, field, f"{path}metadata.")

    def request(self, request: Json, path: str) -> int:
        """Return the number of alternatives of a request."""
        self._names(request, path, ("name",))
        exactly = self._object(request, "exactly", f"{path}.")
        alternatives = self.objects(request, "firstAvailable", path)
        places = [(request, path), (exactly, f"{path}.exactly")]
        places += [(one, f"{path}.firstAvailable[{index}]") for index, one in enumerate(alternatives)]
        for device_request, at in places:
            self._device_request(device_request, at)
        return max(1, len(alternatives))

    def _device_request(self, device_request: Json, path: str) -> None:
        self._names(device_request, path, ("name", "deviceClassName"))
        self.objects(device_request, "selectors", path)
        self.objects(device_request, "tolerations", path)
        amounts = self._object(self._object(device_request, "capacity", f"{path}."), "requests", f"{path}.capacity.")
        if len(amounts) > MAX_AMOUNTS:
            self._note(f"{path}.capacity.requests", f"has {len(amounts):,} entries, and at most {MAX_AMOUNTS} may be")

    def _names(self, holder: Json, path: str, fields: tuple[str, ...]) -> None:
        for field in fields:
            value = holder.get(field)
            if isinstance(value, str) and len(value) > LONGEST_NAME:
                self._note(f"{path}.{field}", f"has {len(value):,} characters, and at most {LONGEST_NAME} may be")

    def objects(self, holder: Json, field: str, path: str) -> list[Json]:
        """Return the objects of a list; none if it is longer than the API allows."""
        value = holder.get(field)
        if value is None:
            return []
        if not isinstance(value, list):
            self._note(f"{path}.{field}", f"is {decoding.kind_of(value)}, a list is expected")
            return []
        if len(value) > MAX_ITEMS[field]:
            self._note(f"{path}.{field}", f"has {len(value):,} entries, and at most {MAX_ITEMS[field]} may be")
            return []
        return list(self._entries(value, f"{path}.{field}"))

    def _entries(self, items: list[Any], path: str) -> Iterator[Json]:
        for index, item in enumerate(items):
            if isinstance(item, dict):
                yield item
            else:
                self._note(f"{path}[{index}]", f"is {decoding.kind_of(item)}, an object is expected")

    def _object(self, holder: Json, field: str, path: str) -> Json:
        value = holder.get(field)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._note(f"{path}{field}", f"is {decoding.kind_of(value)}, an object is expected")
            return {}
        return value

    def _note(self, field: str, message: str) -> None:
        self.problems.append(Problem(field, message))
