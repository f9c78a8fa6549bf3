"""Nodes that autoscalers are kept from taking away: those of a NodeShape that a gang is being placed on, or waits for.

Autoscalers take nodes away that seem idle, as those do that have just come, or whose gangs were evicted to make room.
What Muster puts on a node it names there too, so that it removes only that, also after a restart.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.pods import Pod
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import NodeName
from admission.lifecycle import placement_progress
from admission.scheduling.capacity import unread_shapes
from admission.workloads.gangs import Group

ANNOTATIONS = ("cluster-autoscaler.kubernetes.io/scale-down-disabled", "karpenter.sh/do-not-disrupt")
"""What Cluster Autoscaler and Karpenter heed, with the value `true`."""

DISABLED = "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The nodes that have to get the annotations, and those that have to lose them."""

    keep: tuple[Node, ...] = ()
    release: tuple[Node, ...] = ()

    @property
    def any(self) -> bool:
        return bool(self.keep or self.release)


def is_marked(node: Node) -> bool:
    """Return whether Muster has put annotations on a node."""
    return names.SCALE_DOWN in node.meta.annotations


def needed(granted: Iterable[Group], planned: Iterable[NodeName], snapshot: Snapshot) -> frozenset[NodeName]:
    """Return the nodes that have to stay, of the shapes that there are.

    granted: the gangs with a place that do not run in full. planned: the nodes of plans whose devices are being freed.
    While a shape cannot be read, nodes that had to stay before do: they may be of that shape.
    """
    found = set(planned)
    for group in granted:
        seats = group.placement.seats if group.placement is not None else {}
        outstanding = placement_progress.outstanding(group, is_there=_runs)
        found.update(seats[uid].node for uid in outstanding)
        found.update(pod.node for pod in group.pods if pod.meta.uid in outstanding)
    found.update(name for name, node in snapshot.nodes.items() if node.reserved)
    shapes = snapshot.shapes.values()
    is_unread = unread_shapes.any_unread(snapshot)
    nodes = (snapshot.nodes.get(name) for name in found)
    return frozenset(
        node.name
        for node in nodes
        if node is not None
        and not node.leaving
        and (any(shape.is_shape_of(node) for shape in shapes) or (is_unread and is_marked(node)))
    )


def _runs(pod: Pod) -> bool:
    return pod.phase == "Running"


def changes(needed: Collection[NodeName], marked: Mapping[NodeName, Node], snapshot: Snapshot) -> Changes:
    """Return what to write. marked: the nodes with annotations of Muster."""
    return Changes(
        keep=tuple(snapshot.nodes[name] for name in sorted(needed) if name not in marked and put(snapshot.nodes[name])),
        release=tuple(node for name, node in sorted(marked.items()) if name not in needed),
    )


def put(node: Node) -> Mapping[str, str]:
    """Return the annotations that a node has to get; empty if others have put all of them."""
    lacking = [key for key in ANNOTATIONS if key not in node.meta.annotations]
    return {**dict.fromkeys(lacking, DISABLED), names.SCALE_DOWN: ",".join(lacking)} if lacking else {}


def removed(node: Node) -> Mapping[str, None]:
    """Return the annotations that Muster has put on a node and nobody has changed since, with its own."""
    own = node.meta.annotations.get(names.SCALE_DOWN, "").split(",")
    keys = [key for key in ANNOTATIONS if key in own and node.meta.annotations.get(key) == DISABLED]
    return dict.fromkeys((*keys, names.SCALE_DOWN)) if is_marked(node) else {}
