"""NodeShapes: what a node would be like that is not there yet, how many there may be, and what one costs per hour.

`dra.state.nodes_to_come` makes nodes of them for plans. A shape starts no node: that is what autoscalers do.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from admission.api.capacity import node_pools
from admission.api.kubernetes import devices, meta, nodes
from admission.api.kubernetes.devices import Slice
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.nodes import Node, Resources
from admission.api.values import formats, names, quantities, selectors
from admission.api.values.decoding import Json, Reader
from admission.api.values.selectors import Taint

KIND = "NodeShape"
KEY = f"{KIND}.{names.GROUP}"
"""What `Snapshot.unwatched` calls the kind."""

MOST_NODES = 5_000
"""The most nodes that a shape allows."""

MOST_SLICES = 64

MOST_LABELS = 64

MOST_RESOURCES = 64

MOST_PRICE = 10**9
FINEST_PRICE = 10**9
"""A price per hour is at most 10^9, in steps of 10^-9."""

ANY_NODE = "a-node-to-come"
"""What a slice of a shape has in place of its node's name."""

PASSING_TAINTS = (
    *("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "node.cilium.io/", "karpenter.sh/"),
    *("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler"),
)
"""How the keys of taints begin that a node has for a while."""

WAS_UP = frozenset({"NodesUp", "NoNodes"})
"""The reasons of the condition `Up` of a shape of which a node is or was up."""

GIVEN_BY_NODE = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection", "pool")
"""The fields of a slice that follow from its node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """A NodeShape object.

    max_count: how many nodes of the shape there may be, those that exist included. price: per hour; None if it is not
    given, exact otherwise. matches: the labels by which a node is one of the shape. labels: of a new node, `matches`
    included. slices: of a new node, each without a node and a pool. was_up: whether its status says that a node of it
    is or was up. node_pool: the NodePool of Karpenter whose nodes are of the shape, in `matches` too; empty if none is
    named. pool_most: how many nodes that one lets come at most, those that exist included; None while nothing is known.
    shortfall: how nodes fell short of it, as its status says of this generation; empty if it does not.
    """

    meta: Meta
    max_count: int
    matches: Mapping[str, str]
    labels: Mapping[str, str]
    price: Fraction | None = None
    taints: tuple[Taint, ...] = ()
    allocatable: Resources
    slices: tuple[Slice, ...] = ()
    was_up: bool = False
    node_pool: str = ""
    pool_most: int | None = None
    shortfall: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        return self.meta.name

    def is_shape_of(self, node: Node) -> bool:
        """Return whether a node is one of the shape."""
        labels = node.meta.labels
        return all(labels.get(key) == value for key, value in self.matches.items())

    @property
    def is_limited(self) -> bool:
        """Return whether limits of its NodePool bound how many nodes may come."""
        return self.pool_most is not None

    def left(self, existing: Iterable[Node]) -> int:
        """Return how many more nodes there may be. existing: all nodes of the cluster."""
        most = self.max_count if self.pool_most is None else min(self.max_count, self.pool_most)
        return max(0, most - sum(map(self.is_shape_of, existing)))


def overlapping(shape: NodeShape, shapes: Iterable[NodeShape]) -> list[str]:
    """Return the other shapes of which a new node of this one would be as well, or whose new nodes would be of this."""
    return sorted(
        one.name
        for one in shapes
        if one.name != shape.name
        and (one.matches.items() <= shape.labels.items() or shape.matches.items() <= one.labels.items())
    )


def decode(obj: Json) -> NodeShape:
    """Decode a NodeShape."""
    reader = Reader(obj)
    spec = reader.child("spec")
    matches, labels = _labels(spec, "matchLabels"), _labels(spec, "labels")
    node_pool = _node_pool(spec, matches)
    if not matches and not node_pool:
        spec.problem(
            "matchLabels",
            "is required: the labels that every node of the shape has, and no other node; or name a NodePool of"
            " Karpenter in nodePool",
        )
    if node_pool:
        matches[node_pools.LABEL] = node_pool
    allocatable = nodes.decode_resources(spec, "allocatable")
    if not allocatable:
        spec.problem(
            "allocatable", "is required: what a node of the shape has for pods, as in {cpu: 32, memory: 256Gi}"
        )
    for name, amount in allocatable.items():
        if amount < 0:
            written = spec.child("allocatable").raw(name)
            spec.problem(f"allocatable.{name}", f"{written} is negative; write what a node has for pods, 0 for none")
    price = spec.raw("pricePerHour")
    if isinstance(price, float):
        spec.problem("pricePerHour", f'is a floating-point number; write it in quotes, as in "{price}"')
    result = NodeShape(
        meta=meta.decode(reader),
        max_count=_count(spec),
        matches=matches,
        labels={**labels, **matches},
        price=spec.parsed("pricePerHour", parse_price, None),
        taints=tuple(map(selectors.decode_taint, spec.children("taints"))),
        allocatable=allocatable,
        slices=_slices(spec),
        node_pool=node_pool,
        was_up=any(
            one.text("type") == "Up" and one.text("reason") in WAS_UP
            for one in reader.child("status").children("conditions")
        ),
        shortfall=_shortfall(reader),
    )
    for key in matches.keys() & labels.keys():
        if labels[key] != matches[key]:
            spec.problem(f"labels.{key}", f"is {matches[key]!r} in matchLabels; name it there alone")
    reader.finish("NodeShape", result.meta.key)
    return result


def _shortfall(reader: Reader) -> str:
    generation = reader.child("metadata").integer("generation")
    for one in reader.child("status").children("conditions"):
        if (one.text("type"), one.text("reason"), one.integer("observedGeneration")) == (
            "Matches",
            "Differs",
            generation,
        ):
            return one.text("message")
    return ""


def parse_price(text: str) -> Fraction:
    """Return a price per hour, exactly. Raises ValueError for one that is none."""
    price = quantities.parse(text)
    if price < 0:
        raise ValueError(f"{text} is negative; write what a node costs per hour, 0 for nothing, or leave it out")
    if price > MOST_PRICE or FINEST_PRICE % price.denominator:
        raise ValueError(f"{text} is too large or too fine; write at most 1G, with at most nine decimals")
    return price


def render_price(price: Fraction) -> str:
    """Return a price as a decimal number, exactly: with two decimals, or as many as it needs."""
    scaled = price.numerator * (FINEST_PRICE // price.denominator)
    whole, rest = divmod(scaled, FINEST_PRICE)
    decimals = f"{rest:09}".rstrip("0")
    return f"{whole}.{decimals:0<2}"


def _count(spec: Reader) -> int:
    if "maxCount" not in spec:
        spec.problem("maxCount", "is required: how many nodes of the shape there may be, those that exist included")
    count = spec.int32("maxCount")
    if not 0 <= count <= MOST_NODES:
        spec.problem("maxCount", f"{count} is not a number of nodes from 0 to {MOST_NODES}")
    return count


def _node_pool(spec: Reader, matches: Mapping[str, str]) -> str:
    name = spec.text("nodePool")
    message = formats.value(name) or formats.subdomain(name) if name else ""
    if message:
        spec.problem("nodePool", message)
    named = matches.get(node_pools.LABEL, name)
    if name and named != name:
        spec.problem(f"matchLabels.{node_pools.LABEL}", f"is {named!r}, nodePool is {name!r}; name the NodePool there")
    return name


def _labels(spec: Reader, name: str) -> dict[str, str]:
    found = spec.pairs(name)
    for key, value in found.items():
        message = formats.key(key) or formats.value(value)
        if message:
            spec.problem(f"{name}.{key}", message)
    return found


def slices_of(spec: Reader) -> Iterator[Reader]:
    """Yield a shape's slices as the ResourceSlices of a node: those of one driver are one pool, named like the node."""
    written = list(spec.children("resourceSlices"))
    counts = Counter(slice_.text("driver") for slice_ in written)
    for index, slice_ in enumerate(written):
        kept = {name: value for name, value in slice_.value.items() if name not in GIVEN_BY_NODE}
        pool = {"name": ANY_NODE, "generation": 1, "resourceSliceCount": counts[slice_.text("driver")]}
        yield Reader({**kept, "nodeName": ANY_NODE, "pool": pool}, "resourceSlices", spec, index)


def _slices(spec: Reader) -> tuple[Slice, ...]:
    found: list[Slice] = []
    known: set[tuple[str, str]] = set()
    for index, slice_ in enumerate(spec.children("resourceSlices")):
        for name in GIVEN_BY_NODE:
            if name in slice_:
                slice_.problem(name, "follows from the node, which does not exist yet; leave it out")
        if index == MOST_SLICES:
            spec.problem("resourceSlices", f"has more than {MOST_SLICES} slices; leave out what pods do not ask for")
    for index, reader in enumerate(slices_of(spec)):
        decoded = devices.decode_slice_spec(Meta(name=f"{ANY_NODE}-{index}"), reader)
        for device in decoded.devices:
            if (decoded.driver, device.name) in known:
                reader.problem("devices", f"has device {device.name} of {decoded.driver} again; name each device once")
            known.add((decoded.driver, device.name))
        found.append(decoded)
    return tuple(found)
