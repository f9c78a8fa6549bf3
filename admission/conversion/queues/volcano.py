"""Volcano's queues as Muster's: Queues with quotas, and Meters of the resources and device classes that they name.

In Volcano's capacity plugin `deserved` is what others give back, `guarantee` what is never lent, `capability` what is
never exceeded, and what a queue above deserves contains what those below it do; a Muster Queue above others has a pool
beside theirs. DRA quota has keys of its own in these lists: `deviceclass/CLASS` counts devices, and
`CAPACITY.deviceclass/CLASS` what is consumed of a capacity of theirs.
"""

import copy
import re
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from admission.api.values import quantities
from admission.conversion.equivalents import Object
from admission.conversion.findings import Findings
from admission.conversion.queues import fields, meters
from admission.conversion.queues.fields import Converted
from admission.errors import AmountError

GROUP = "scheduling.volcano.sh"
ROOT = "root"
DEFAULT = "default"
"""The queue of pods that name none."""

_DRA_KEY = re.compile(r"((?P<capacity>[^/]+)\.)?deviceclass/(?P<device_class>[^/]+)")
_MOST_LEVELS = 16
"""Of a tree of Queues; a deeper one is inactive."""

_STRATEGIES = {"fifo": "StrictFIFO", "traverse": "BestEffortFIFO"}
_REMEDIES = {
    "affinity": "give the pods a nodeAffinity, which the plan heeds",
    "extendClusters": "nothing here spans clusters but budgets with scope: Global",
    "priority": "queues under one parent rank by their shares; gangs by priority within their queue",
    "reclaimable": "whether to take quota back is said by the queue that lent it: preemption.reclaim of the others",
    "type": "has no counterpart here",
}


@dataclass(slots=True)
class _Queue:
    """A queue of Volcano while it is converted, its amounts by resource in units of the Meters."""

    name: str
    parent: str
    spec: Object
    findings: Findings
    is_closed: bool = False
    deserved: dict[str, int] = field(default_factory=dict)
    capability: dict[str, int] = field(default_factory=dict)
    guarantee: dict[str, int] = field(default_factory=dict)
    children: list["_Queue"] = field(default_factory=list)


def convert(objects: Sequence[Mapping[str, Any]]) -> Converted:
    """Return the Meters and Queues that Volcano's queues describe. Objects of other groups are left out."""
    found = [(copy.deepcopy(dict(one)), Findings()) for one in objects]
    read = [
        _read(obj, findings)
        for obj, findings in found
        if str(obj.get("apiVersion")).rpartition("/")[0] == GROUP and obj.get("kind") == "Queue"
    ]
    queues = {queue.name: queue for queue in read}
    for queue in read:
        if queue.parent in queues and queues[queue.parent] is not queue:
            queues[queue.parent].children.append(queue)
    made = {name: _convert_queue(queue) for name, queue in queues.items()}
    for parent in {queue.parent for queue in read} - {"", *queues}:
        made[parent] = fields.new_object("Queue", parent, {})
    _report_what_nobody_owns(read, queues)
    resources = dict.fromkeys(name for queue in read for name in (*queue.deserved, *queue.capability, *queue.guarantee))
    counted = [_meter(resource) for resource in resources]
    return Converted((*counted, *fields.parents_first(made)), tuple(findings for _, findings in found))


def _read(obj: Object, findings: Findings) -> _Queue:
    spec = obj.get("spec")
    given: Object = spec if isinstance(spec, MutableMapping) else {}
    name = fields.name(obj)
    parent = str(given.pop("parent", None) or ("" if name == ROOT else ROOT))
    queue = _Queue(name=name, parent=parent, spec=given, findings=findings)
    queue.deserved = _amounts(given.pop("deserved", None), "deserved", findings)
    queue.capability = _amounts(given.pop("capability", None), "capability", findings)
    queue.guarantee = _amounts(fields.pop(given, "guarantee", "resource"), "guarantee.resource", findings)
    queue.is_closed = fields.get(obj, "status", "state") in ("Closed", "Closing")
    if queue.is_closed:
        findings.changed("status.state", "is stopPolicy: Hold of the Queue")
    return queue


def _amounts(given: Any, path: str, findings: Findings) -> dict[str, int]:
    found: dict[str, int] = {}
    for resource, value in given.items() if isinstance(given, Mapping) else ():
        try:
            found[str(resource)] = meters.quota_amount(value, str(resource))
        except AmountError as error:
            findings.left(f"spec.{path}", f"{resource}: {error}")
    return found


def _convert_queue(queue: _Queue) -> Object:
    spec: Object = {"parent": queue.parent} if queue.parent else {}
    if not queue.children and queue.name != ROOT:
        # What no queue speaks of is free in Volcano.
        spec.update({"namespaceSelector": {}, "aliases": [queue.name], "unmeteredClasses": "Allow"})
        if queue.name == DEFAULT:
            spec["default"] = True
    if quotas := [_quota(queue, resource) for resource in _resources(queue)]:
        spec["quotas"] = quotas
    _convert_order(queue, spec)
    if queue.deserved and queue.parent:
        spec["preemption"] = {"reclaim": "Any"}
        queue.findings.check(
            "spec.deserved",
            "is taken back by preemption.reclaim: Any, as by Volcano where its action reclaim is on",
        )
    queue.findings.changed("kind", f"is Queue {queue.name}")
    for path in fields.leaves(queue.spec):
        name = path.partition(".")[0].partition("[")[0]
        queue.findings.left(f"spec.{path}", _REMEDIES.get(name, "has no counterpart here"))
    return fields.new_object("Queue", queue.name, spec)


def _convert_order(queue: _Queue, spec: Object) -> None:
    """Convert what says in which order gangs start."""
    given = queue.spec
    strategy = given.get("dequeueStrategy")
    if strategy in _STRATEGIES:
        spec["queueingStrategy"] = _STRATEGIES[given.pop("dequeueStrategy")]
    weight = given.pop("weight", None)
    if weight is not None:
        spec["fairSharing"] = {"weight": str(weight)}
    if given.get("reclaimable") is True:
        del given["reclaimable"]
    if queue.is_closed:
        spec["stopPolicy"] = "Hold"


def _report_what_nobody_owns(read: Sequence[_Queue], queues: Mapping[str, _Queue]) -> None:
    """Report once for each resource that a root queue has no quota of what is there beyond what queues deserve."""
    reported: set[tuple[str, str]] = set()
    for queue in read:
        root = queue.parent
        known = _resources(queues[root]) if root in queues else {}
        for resource, deserved in queue.deserved.items():
            may_have_more = queue.capability.get(resource, deserved + 1) > deserved
            if root == ROOT and may_have_more and resource not in known and (root, resource) not in reported:
                reported.add((root, resource))
                message = (
                    f"{resource}: give Queue {root} a quota of what the cluster has beyond what the queues deserve, so"
                    " that they may borrow that as well; now they borrow from each other"
                )
                queue.findings.check("spec.deserved", message)


def _resources(queue: _Queue) -> dict[str, None]:
    return dict.fromkeys((*queue.deserved, *queue.capability, *queue.guarantee))


def _quota(queue: _Queue, resource: str) -> Object:
    """Return the quota of a queue, without what those below it have."""
    capability, guarantee = queue.capability.get(resource), queue.guarantee.get(resource)
    whole = _nominal(queue, resource)
    below = sum(_subtree(child, resource, _MOST_LEVELS) for child in queue.children)
    nominal = max(whole - below, 0)
    findings, path = queue.findings, "spec.capability"
    borrowing = None if capability is None or not queue.parent else capability - max(whole, below)
    if borrowing is not None and borrowing < 0:
        findings.left(path, f"{resource}: the capability is less than what the queue and those below it deserve")
        borrowing = 0
    if resource not in queue.deserved and guarantee is None and queue.parent and not queue.children:
        message = f"{resource}: nothing is deserved, and weights share the cluster: the Queue owns its capability here"
        findings.check(path, message)
    lending = None
    if guarantee is not None and queue.children:
        findings.left("spec.guarantee.resource", f"{resource}: guarantee it to the queues below, which own the quota")
    elif guarantee is not None:
        lending = max(nominal - guarantee, 0)
    return {
        "meter": _meter(resource)["metadata"]["name"],
        "nominal": quantities.render(nominal),
        **({} if borrowing is None else {"borrowingLimit": quantities.render(borrowing)}),
        **({} if lending is None else {"lendingLimit": quantities.render(lending)}),
    }


def _nominal(queue: _Queue, resource: str) -> int:
    """Return what a queue owns together with those below it: it deserves it, or may have no more."""
    for known in (queue.deserved, queue.guarantee, queue.capability):
        if resource in known:
            return known[resource]
    return 0


def _subtree(queue: _Queue, resource: str, levels: int) -> int:
    """Return what a queue and those below it own; a circle ends after some levels."""
    below = sum(_subtree(child, resource, levels - 1) for child in queue.children) if levels > 0 else 0
    return max(_nominal(queue, resource), below)


def _meter(resource: str) -> Object:
    found = _DRA_KEY.fullmatch(resource)
    if found is None:
        return meters.for_node_resource(resource)
    capacity, device_class = found["capacity"] or "", found["device_class"]
    name = f"{device_class}-{capacity}" if capacity else device_class
    return meters.for_devices(name, [device_class], capacity=capacity)
