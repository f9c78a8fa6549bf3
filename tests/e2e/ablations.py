"""What decides a world's answer: a feature does if kube-scheduler's allocator answers otherwise without it.

The corpus marks some features as `decisive`; this asks about each, of any world, on any version.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.controlplane.allocators import Oracle

Record = dict[str, Any]


def deciding(record: Record, oracle: Oracle) -> set[str]:
    """Return the features without which the outcome or the choice of devices would be another; of `config`, the result.

    Several claims or requests decide where they get other devices together than each would alone.
    """
    answer = oracle.ask(record)
    found = set()
    for feature, edit in WITHOUT.items():
        without = copy.deepcopy(record)
        edit(without)
        other = oracle.ask(without)
        if _choice(other) != _choice(answer) or (feature == "config" and other.get("results") != answer.get("results")):
            found.add(feature)
    for feature, split in PARTS.items():
        alone = [oracle.ask(part) for part in split(record)]
        if len(alone) > 1 and _together_matters(answer, alone):
            found.add(feature)
    return found


def _choice(answer: Record) -> tuple[Any, ...]:
    return (answer["outcome"], answer.get("fatal"), _devices(answer))


def _devices(answer: Record) -> list[tuple[str, ...]]:
    results = [one for claim in answer.get("results") or [] for one in claim["devices"].get("results", [])]
    return [(one["request"], one["driver"], one["pool"], one["device"]) for one in results]


def _together_matters(answer: Record, alone: list[Record]) -> bool:
    if answer["outcome"] == "allocated":
        return _devices(answer) != [device for one in alone for device in _devices(one)]
    return all(one["outcome"] == "allocated" for one in alone)


def _claim_by_claim(record: Record) -> Iterator[Record]:
    for claim in record["claims"]:
        yield {**record, "claims": [claim]}


def _request_by_request(record: Record) -> Iterator[Record]:
    for claim in record["claims"]:
        for request in claim["spec"]["devices"].get("requests") or []:
            alone = copy.deepcopy(claim)
            devices = alone["spec"]["devices"]
            constraints = [_narrowed(one, request["name"]) for one in devices.get("constraints") or []]
            kept = [one for one in constraints if one.get("requests") != []]
            alone["spec"]["devices"] = {"requests": [request], "constraints": kept}
            yield {**record, "claims": [alone]}


def _narrowed(constraint: Record, request: str) -> Record:
    """Keep of the requests that a constraint names those of this request; one that names none is for all."""
    if not constraint.get("requests"):
        return constraint
    return {**constraint, "requests": [one for one in constraint["requests"] if one.split("/")[0] == request]}


def _of_devices(*fields: str) -> Callable[[Record], None]:
    def edit(record: Record) -> None:
        for piece in record["slices"]:
            for device in piece["spec"].get("devices") or []:
                _drop(device, fields)

    return edit


def _of_requests(*fields: str) -> Callable[[Record], None]:
    def edit(record: Record) -> None:
        for request in _requests(record):
            _drop(request, fields)

    return edit


def _of_specs(field: str) -> Callable[[Record], None]:
    """Of claims and classes."""

    def edit(record: Record) -> None:
        for owner in (*(claim["spec"]["devices"] for claim in record["claims"]), *_class_specs(record)):
            _drop(owner, (field,))

    return edit


def _constraints(kind: str) -> Callable[[Record], None]:
    def edit(record: Record) -> None:
        for claim in record["claims"]:
            devices = claim["spec"]["devices"]
            devices["constraints"] = [one for one in devices.get("constraints") or [] if kind not in one]

    return edit


def _pools(field: str) -> Callable[[Record], None]:
    """Take away every pool that says where it is in this way."""

    def edit(record: Record) -> None:
        gone = {_pool(piece) for piece in record["slices"] if piece["spec"].get(field)}
        record["slices"] = [piece for piece in record["slices"] if _pool(piece) not in gone]

    return edit


def _selectors(record: Record) -> None:
    for owner in (*_requests(record), *_class_specs(record)):
        _drop(owner, ("selectors",))


def _alternatives(record: Record) -> None:
    """Leave the first alternative only."""
    for claim in record["claims"]:
        for request in claim["spec"]["devices"].get("requests") or []:
            if "firstAvailable" in request:
                request["firstAvailable"] = request["firstAvailable"][:1]


def _all_devices(record: Record) -> None:
    """Ask for one device instead of all."""
    for request in _requests(record):
        if request.get("allocationMode") == "All":
            request.update({"allocationMode": "ExactCount", "count": 1})


def _taken(record: Record) -> None:
    record.update({"allocated": [], "sharedDevices": [], "consumedCapacity": []})


def _drop(owner: Record, fields: tuple[str, ...]) -> None:
    for field in fields:
        owner.pop(field, None)


def _pool(piece: Record) -> tuple[str, str]:
    return piece["spec"]["driver"], piece["spec"]["pool"]["name"]


def _class_specs(record: Record) -> list[Record]:
    return [one["spec"] for one in record["classes"]]


def _requests(record: Record) -> Iterator[Record]:
    for claim in record["claims"]:
        for request in claim["spec"]["devices"].get("requests") or []:
            if "exactly" in request:
                yield request["exactly"]
            yield from request.get("firstAvailable") or []


WITHOUT: Mapping[str, Callable[[Record], None]] = {
    "adminAccess": _of_requests("adminAccess"),
    "all": _all_devices,
    "allNodes": _pools("allNodes"),
    "alreadyAllocated": _taken,
    "bindingConditions": _of_devices("bindingConditions", "bindingFailureConditions", "bindsToNode"),
    "capacityRequest": _of_requests("capacity"),
    "config": _of_specs("config"),
    "counters": _of_devices("consumesCounters"),
    "distinctAttribute": _constraints("distinctAttribute"),
    "firstAvailable": _alternatives,
    "matchAttribute": _constraints("matchAttribute"),
    "perDeviceNodeSelection": _pools("perDeviceNodeSelection"),
    "selectors": _selectors,
    "sharedCapacity": _of_devices("allowMultipleAllocations"),
    "sliceNodeSelector": _pools("nodeSelector"),
    "taints": _of_devices("taints"),
    "tolerations": _of_requests("tolerations"),
}
PARTS: Mapping[str, Callable[[Record], Iterator[Record]]] = {
    "multiClaim": _claim_by_claim,
    "multiRequest": _request_by_request,
}
