"""NodeShapes generalised from nodes that are or were there: what all nodes of a group have in common.

Of a group of nodes, a shape has the labels and taints that all of them have, the least of each resource, less what pods
of DaemonSets request, and the devices that all of them have, with the attributes in which these agree. What is named
after a node, and what passes, such as the taint of a node that is not ready, is left out.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from admission.api.capacity import node_pools, node_shapes
from admission.api.kubernetes import devices, meta, nodes, pods
from admission.api.validation import objects
from admission.api.values import names, quantities
from admission.api.values.decoding import Json, Reader
from admission.errors import FixError, MalformedObjectError

KNOWN = (
    *(node_pools.LABEL, "eks.amazonaws.com/nodegroup", "cloud.google.com/gke-nodepool"),
    *("kubernetes.azure.com/agentpool", "node.kubernetes.io/instance-type"),
)
"""Labels that say which group of an autoscaler a node is of, the first that a node has before the others."""

FACTOR = 2
"""Without another number, there may be so many times the nodes that were seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The shapes, by name, and what could not be generalised."""

    shapes: tuple[Json, ...]
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Group:
    """The nodes of one shape, with their slices. labels: those by which they are known."""

    labels: Mapping[str, str]
    nodes: list[Json] = field(default_factory=list)


def propose(bodies: Sequence[Json], *, by: Sequence[str], most: int | None) -> Proposal:
    """Return a shape for each group of nodes. by: the labels that tell groups apart; none for one of `KNOWN`.

    most: how many nodes of each there may be. Raises FixError if no node has such a label, and MalformedObjectError for
    an object that cannot be read.
    """
    found = [body for body in bodies if body.get("kind") == "Node"]
    notes: list[str] = []
    groups: dict[tuple[str, ...], _Group] = {}
    for body in found:
        labels = _known_by(body, by)
        if not labels:
            notes.append(f"node {meta.name_in(body)} has no {_listed(by)}, so it is of no shape")
            continue
        groups.setdefault(tuple(labels.values()), _Group(labels)).nodes.append(body)
    if not groups:
        raise FixError(
            f"no node has {_listed(by)}; name a label whose values tell nodes apart, as in --by example.com/pool"
        )
    used = _requested_by_daemons(bodies)
    slices = _local_slices(bodies)
    shapes: dict[str, Json] = {}
    for values, group in sorted(groups.items()):
        name = _free_name("-".join(values), shapes)
        shape = _shape(name, group, slices, used, most, notes)
        try:
            node_shapes.decode(shape)
        except MalformedObjectError as error:
            notes.append(f"{error}; left out")
            continue
        wrong = objects.other_problems(shape)
        notes += [f"NodeShape {name}: {problem.field}: {problem.message}" for problem in wrong]
        shapes[name] = shape
    return Proposal(shapes=tuple(shapes.values()), notes=tuple(notes))


def _listed(by: Sequence[str]) -> str:
    return f"label {' and '.join(by)}" if by else f"label of {', '.join(KNOWN)}"


def _known_by(node: Json, by: Sequence[str]) -> dict[str, str]:
    labels = Reader(node).child("metadata").pairs("labels")
    if by:
        return {key: labels[key] for key in by} if all(key in labels for key in by) else {}
    known = next((key for key in KNOWN if key in labels), None)
    if known is None:
        return {}
    # A NodePool of Karpenter may start nodes of several types.
    return {key: labels[key] for key in dict.fromkeys((known, KNOWN[-1])) if key in labels}


def _free_name(text: str, taken: Collection[str]) -> str:
    """Return a name for a shape that is like a text."""
    name = re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")[:50].strip("-") or "nodes"
    numbered = (f"{name}-{number}" for number in range(2, len(taken) + 3))
    return next(one for one in (name, *numbered) if one not in taken)


def _shape(  # noqa: PLR0917 - what a shape is made of
    name: str,
    group: _Group,
    slices: Mapping[str, Sequence[Json]],
    used: Mapping[str, nodes.Resources],
    most: int | None,
    notes: list[str],
) -> Json:
    known = [meta.name_in(node) for node in group.nodes]
    labels = _common(_labels(node) for node in group.nodes)
    taints = _common({_text(taint): taint for taint in _taints(node)} for node in group.nodes)
    match = {key: value for key, value in group.labels.items() if key != node_pools.LABEL}
    spec: dict[str, Any] = {
        "maxCount": most if most is not None else min(FACTOR * len(known), node_shapes.MOST_NODES),
        "nodePool": group.labels.get(node_pools.LABEL, ""),
        "matchLabels": match,
        "labels": {key: value for key, value in labels.items() if key not in group.labels},
        "taints": list(taints.values()),
        "allocatable": _allocatable(group.nodes, used),
        "resourceSlices": _devices(name, [slices.get(node, ()) for node in known], notes),
    }
    body = {key: value for key, value in spec.items() if value not in ({}, [], "")}
    return {"apiVersion": names.API_VERSION, "kind": "NodeShape", "metadata": {"name": name}, "spec": body}


def _common(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what all mappings have in common."""
    first, *rest = parts
    return {key: value for key, value in first.items() if all(key in other and other[key] == value for other in rest)}


def _labels(node: Json) -> dict[str, str]:
    """Return a node's labels but for those that are named after it."""
    name = meta.name_in(node)
    return {
        key: value
        for key, value in Reader(node).child("metadata").pairs("labels").items()
        if name not in value and key != names.HOSTNAME
    }


def _taints(node: Json) -> Iterator[dict[str, str]]:
    for taint in Reader(node).child("spec").children("taints"):
        if not taint.text("key").startswith(node_shapes.PASSING_TAINTS):
            yield {key: taint.text(key) for key in ("key", "value", "effect") if taint.text(key)}


def _text(value: Any) -> str:
    return repr(sorted(value.items()))


def _requested_by_daemons(bodies: Iterable[Json]) -> dict[str, nodes.Resources]:
    """Return what pods of DaemonSets request on each node."""
    found: dict[str, nodes.Resources] = {}
    for body in bodies:
        if body.get("kind") != "Pod":
            continue
        pod = pods.decode(body)
        owner = pod.meta.controller
        if owner is not None and owner.kind == "DaemonSet" and pod.node and not pod.finished:
            found[pod.node] = nodes.total([found.get(pod.node, {}), pod.requests, {"pods": 1}])
    return found


def _allocatable(group: Iterable[Json], used: Mapping[str, nodes.Resources]) -> dict[str, str]:
    """Return the least of each resource that a node has for pods that are no daemons."""
    left = []
    for body in group:
        node = nodes.decode(body)
        taken = used.get(node.name, {})
        left.append({name: max(0, total - taken.get(name, 0)) for name, total in (node.allocatable or {}).items()})
    shared = [name for name in left[0] if all(name in other for other in left)]
    return {name: _written(name, min(one[name] for one in left)) for name in shared}


def _written(name: str, amount: int) -> str:
    if name == "cpu" and amount % 1000:
        return f"{amount}m"
    return quantities.render(amount // 1000 if name == "cpu" else amount)


def _local_slices(bodies: Iterable[Json]) -> dict[str, list[Json]]:
    """Return the specs of slices by the node that they name, of each pool the newest generation."""
    found: dict[str, list[Json]] = {}
    newest: dict[tuple[str, str], int] = {}
    found_slices = [body for body in bodies if body.get("kind") == "ResourceSlice"]
    for body in found_slices:
        # What follows reads them as they are written.
        devices.decode_slice(body)
    specs = [body["spec"] for body in found_slices]
    for spec in specs:
        newest[_pool(spec)] = max(newest.get(_pool(spec), 0), _generation(spec))
    for spec in specs:
        if spec.get("nodeName") and _generation(spec) == newest[_pool(spec)]:
            found.setdefault(str(spec["nodeName"]), []).append(spec)
    return found


def _pool(spec: Json) -> tuple[str, str]:
    return str(spec.get("driver")), Reader(spec).child("pool").text("name")


def _generation(spec: Json) -> int:
    return Reader(spec).child("pool").integer("generation")


def _devices(shape: str, slices: Sequence[Sequence[Json]], notes: list[str]) -> list[Json]:
    """Return the slices of the first node, with the devices that all nodes have in common."""
    drivers = {str(spec.get("driver")) for one in slices for spec in one}
    for driver in sorted(drivers):
        if any(len({_pool(spec) for spec in one if spec.get("driver") == driver}) > 1 for one in slices):
            notes.append(f"NodeShape {shape}: driver {driver} has several pools on a node; a shape has one, left out")
            drivers.discard(driver)
    kept = [[spec for spec in one if spec.get("driver") in drivers] for one in slices]
    by_name = [
        {(spec["driver"], device["name"]): device for spec in one for device in spec.get("devices") or ()}
        for one in kept
    ]
    found: list[Json] = []
    for spec in kept[0]:
        if spec.get("sharedCounters"):
            found.append({"driver": spec["driver"], "sharedCounters": spec["sharedCounters"]})
        same = [
            _agreed([one[spec["driver"], device["name"]] for one in by_name])
            for device in spec.get("devices") or ()
            if all((spec["driver"], device["name"]) in one for one in by_name)
        ]
        if same:
            found.append({"driver": spec["driver"], "devices": same})
    seen = max(map(len, by_name))
    if seen > (fewest := sum(len(spec.get("devices", ())) for spec in found)):
        notes.append(f"NodeShape {shape}: a node has {seen} devices, all nodes have {fewest} of them in common")
    return found


def _agreed(devices: Sequence[Json]) -> Json:
    """Return a device with the attributes and capacities that are equal on all nodes, without what passes."""
    first = devices[0]
    common = {key: _common([one.get(key) or {} for one in devices]) for key in ("attributes", "capacity")}
    kept = {key: value for key, value in first.items() if key not in {*common, "taints"}}
    return {**kept, **{key: value for key, value in common.items() if value}}
