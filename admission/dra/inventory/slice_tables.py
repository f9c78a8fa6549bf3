"""The slices of a cluster by node and by pool, and those that name no node.

The tables of one state of the cluster are made from those of the state before: while few slices change, only their
nodes and pools are looked up again. They are immutable parts of cluster states, and no declaration over
`admission.incremental` for the reason that `node_index` gives. The law is tested in `tests/property/test_slices.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from admission.api.kubernetes.devices import Device, Slice
from admission.api.kubernetes.nodes import Node
from admission.api.snapshot import changed
from admission.api.values.names import NodeName
from admission.incremental import are_same

K = TypeVar("K")

PART_CHANGED = 8
"""All slices are read again once one of so many has changed."""


class Elsewhere:
    """The slices that name no node: finds those that may be for a node without reading all of them.

    A node selector that requires one of some values of a label, as nearly all do, is found by label and value.
    """

    def __init__(self, slices: Sequence[Slice] = ()) -> None:
        self.slices = tuple(slices)
        self._always: list[int] = []
        self._by_label: dict[tuple[str, str], list[int]] = {}
        for at, slice_ in enumerate(slices):
            keys = _keys(slice_)
            if keys is None:
                self._always.append(at)
            else:
                for key in keys:
                    self._by_label.setdefault(key, []).append(at)

    def candidates(self, node: Node) -> list[Slice]:
        """Return all slices that may be for the node, and possibly others, in their order."""
        if not self._by_label:
            return [self.slices[at] for at in self._always]
        found = set(self._always).union(self._by_label.get((_NAME, node.name), ()))
        for pair in node.meta.labels.items():
            found.update(self._by_label.get(pair, ()))
        return [self.slices[at] for at in sorted(found)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SliceTables:
    """The slices of a cluster, in their order in each table.

    by_key: all. on_node: those that name a node. elsewhere: all others. members: of each pool, by driver and name.
    drawing: the pools with shared counters. takes_of_nodes: whether a device takes resources of its node beside what
    pods request.
    """

    by_key: Mapping[str, Slice] = field(default_factory=dict)
    on_node: Mapping[NodeName, tuple[Slice, ...]] = field(default_factory=dict)
    elsewhere: Elsewhere = field(default_factory=Elsewhere)
    members: Mapping[tuple[str, str], tuple[Slice, ...]] = field(default_factory=dict)
    drawing: frozenset[tuple[str, str]] = frozenset()
    takes_of_nodes: bool = False


def build(slices: Mapping[str, Slice], before: SliceTables | None = None) -> SliceTables:
    """Return the tables of slices by key. before: those of an earlier state."""
    was = before.by_key if before is not None else {}
    keys = changed(was, slices)
    touched = [some[key] for key in keys for some in (was, slices) if key in some]
    if before is None or PART_CHANGED * len(keys) > len(slices) or not all(one.node_name for one in touched):
        return _all(slices, before.elsewhere if before is not None else Elsewhere())
    nodes = {one.node_name for one in touched}
    pools = {(one.driver, one.pool) for one in touched}
    concerned = {key: one for key, one in slices.items() if one.node_name in nodes or (one.driver, one.pool) in pools}
    found = _all(concerned, before.elsewhere)
    return SliceTables(
        by_key=slices,
        on_node=_with(before.on_node, found.on_node, nodes),
        elsewhere=before.elsewhere,
        members=_with(before.members, found.members, pools),
        drawing=before.drawing.difference(pools).union(found.drawing & pools),
        takes_of_nodes=any(one.takes_of_nodes for one in (slices.values() if before.takes_of_nodes else touched)),
    )


def _all(slices: Mapping[str, Slice], before: Elsewhere) -> SliceTables:
    """Return the tables, read from all slices. before: is taken if the same slices name no node."""
    on_node: dict[NodeName, list[Slice]] = {}
    members: dict[tuple[str, str], list[Slice]] = {}
    elsewhere: list[Slice] = []
    for slice_ in slices.values():
        members.setdefault((slice_.driver, slice_.pool), []).append(slice_)
        if slice_.node_name:
            on_node.setdefault(slice_.node_name, []).append(slice_)
        else:
            elsewhere.append(slice_)
    return SliceTables(
        by_key=slices,
        on_node={name: tuple(found) for name, found in on_node.items()},
        elsewhere=before if are_same(before.slices, elsewhere) else Elsewhere(elsewhere),
        members={pool: tuple(found) for pool, found in members.items()},
        drawing=frozenset(pool for pool, found in members.items() if any(one.counters for one in found)),
        takes_of_nodes=any(one.takes_of_nodes for one in slices.values()),
    )


def _with(
    before: Mapping[K, tuple[Slice, ...]], now: Mapping[K, tuple[Slice, ...]], keys: Iterable[K]
) -> dict[K, tuple[Slice, ...]]:
    """Return a table with what other keys have now."""
    found = dict(before)
    for key in keys:
        found.pop(key, None)
        if key in now:
            found[key] = now[key]
    return found


_NAME = "metadata.name"
"""The only field that node selectors support. A label of this name matches too, which only adds candidates."""


def _keys(slice_: Slice) -> set[tuple[str, str]] | None:
    """Return labels with values, or node names, of which a node must have one; None if there is no such set."""
    places: Sequence[Slice | Device] = slice_.devices if slice_.per_device_nodes else (slice_,)
    keys: set[tuple[str, str]] = set()
    for place in places:
        found = _keys_of(place)
        if found is None:
            return None
        keys |= found
    return keys


def _keys_of(place: Slice | Device) -> set[tuple[str, str]] | None:
    if place.node_name:
        return {(_NAME, place.node_name)}
    if place.all_nodes:
        return None
    keys: set[tuple[str, str]] = set()
    for term in place.node_selector.terms if place.node_selector is not None else ():
        wanted = next((r for r in (*term.fields, *term.expressions) if r.operator == "In"), None)
        if wanted is None:
            return None
        keys.update((wanted.key, value) for value in wanted.values)
    return keys
