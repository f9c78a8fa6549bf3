"""The contents of one node for a search, as numbers: its devices with their use, and the counters left.

Nodes with equal contents are equal for everything that a gang requests, so one search answers for all of them.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from admission.api.kubernetes.devices import DeviceId
from admission.dra.compatibility import KnownBugs
from admission.dra.equivalence.device_signature import DeviceSignature, DeviceSignatures
from admission.dra.inventory.counters import Amount, CounterId, Draw
from admission.dra.inventory.pools import NodeInventory, PoolHealth, PoolId
from admission.dra.requests.device_use import Share


@dataclass(frozen=True, slots=True)
class Use:
    """The use of a device. taken: a claim has it exclusively. shares: claims have shares of it.

    amounts: what the shares consume, for each of the signature's capacities; None if no share states what it consumes.
    """

    taken: bool = False
    shares: bool = False
    amounts: tuple[Amount, ...] | None = None


FREE = Use()
TAKEN = Use(taken=True)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceGroup:
    """A unit: equal devices with equal use, as a search sees them.

    counter_set: the index of their pool among those with counters, -1 for none.
    """

    signature: DeviceSignature
    use: Use
    counter_set: int


@dataclass(frozen=True, slots=True)
class LeftCapacity:
    """What is left of the counters of one pool. same_named: the index of the first pool of the same name, or its own.

    vanished: a device of the pool is in use that no slice describes any more, so what it draws is unknown. inexact:
    1.36 adds up an amount of it wrongly. totals: of the counters; draws: of all devices of the pool, also those that
    match no request. Both are used only to put partitions and nodes in order.
    """

    counters: tuple[CounterId, ...]
    available: tuple[Amount, ...]
    same_named: int
    vanished: bool = False
    inexact: bool = False
    totals: tuple[Amount, ...] = field(default=(), repr=False)
    draws: Mapping[DeviceId, Draw] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Trouble:
    """The incomplete pools of a node, and the invalid ones, for people; empty if there are none."""

    incomplete: str = ""
    invalid: str = ""


NO_TROUBLE = Trouble()
NO_TROUBLES = (NO_TROUBLE, NO_TROUBLE)


@dataclass(frozen=True, slots=True)
class NodeContents:
    """All that a search reads of a node.

    units: by number, in the order in which the allocator tries devices. troubles: for 1.37 and for 1.36. disputed:
    relevant pools that 1.36 and 1.37 see differently; empty if there are none. slices: for a release that takes them in
    random order, the number of each unit's slice on the node; else empty.
    """

    units: tuple[int, ...] = ()
    counter_sets: tuple[LeftCapacity, ...] = ()
    troubles: tuple[Trouble, Trouble] = NO_TROUBLES
    disputed: str = ""
    slices: tuple[int, ...] = ()

    def trouble(self, known_bugs: KnownBugs) -> Trouble:
        return self.troubles[known_bugs.foreign_counters]


class Units:
    """The numbers of units, for one set of device signatures.

    Rule: only `number` adds units, and a number never changes. `results` is written by the searches, each under a key
    of its own, with values that depend on the numbers alone.
    """

    def __init__(self, device_signatures: DeviceSignatures) -> None:
        self.device_signatures = device_signatures
        self.known: list[DeviceGroup] = []
        self.results: dict[Hashable, dict[Any, Any]] = {}
        """Results of `upper_bound` and `first_fit` for nodes of these units; valid as long as the numbers are."""
        self._numbers: dict[tuple[int, Use, int], int] = {}
        self._free: dict[tuple[int, int], int] = {}

    def number(self, signature: int, use: Use, counter_set: int) -> int:
        """Return the number of a unit."""
        if use is FREE:
            return self.free(signature, counter_set)
        key = (signature, use, counter_set)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = self._new(signature, use, counter_set)
        return found

    def free(self, signature: int, counter_set: int) -> int:
        """Return the number of a unit that is not in use."""
        found = self._free.get((signature, counter_set))
        if found is None:
            found = self._free[signature, counter_set] = self._new(signature, FREE, counter_set)
        return found

    def _new(self, signature: int, use: Use, counter_set: int) -> int:
        self.known.append(DeviceGroup(self.device_signatures.known[signature], use, counter_set))
        return len(self.known) - 1


def troubles(node_inventory: NodeInventory) -> tuple[Trouble, Trouble]:
    """Return what is wrong with a node's pools, for 1.37 and for 1.36."""
    if node_inventory.plain:
        return NO_TROUBLES
    return (_trouble(node_inventory, KnownBugs()), _trouble(node_inventory, KnownBugs(foreign_counters=True)))


def _trouble(node_inventory: NodeInventory, known_bugs: KnownBugs) -> Trouble:
    broken = node_inventory.broken(known_bugs)
    return Trouble(
        *(
            "; ".join(f"{pool.title}: {pool.why}" for pool in broken if pool.soundness is soundness)
            for soundness in (PoolHealth.INCOMPLETE, PoolHealth.INVALID)
        )
    )


def disputed(node_inventory: NodeInventory, device_signatures: DeviceSignatures) -> str:
    """Return the relevant pools that 1.36 and 1.37 see differently, for people."""
    if not node_inventory.disputed:
        return ""
    pools = (*node_inventory.pools, *(node_inventory.old or ()))
    names: dict[PoolId, str] = {
        pool.id: pool.title
        for pool in pools
        if pool.id in node_inventory.disputed and device_signatures.may_serve(pool)
    }
    return ", ".join(names[pool] for pool in sorted(names))


def all_same_named(names: Sequence[str]) -> list[int]:
    """Return for each pool the index of the first one with its name."""
    first: dict[str, int] = {}
    return [first.setdefault(name, at) for at, name in enumerate(names)]


def shared_use(signature: DeviceSignature, shares: Iterable[Share]) -> Use:
    """Return the use of a device with these shares."""
    stated = [share for share in shares if share is not None]
    if not stated:
        return Use(shares=True)
    return Use(
        shares=True,
        amounts=tuple(sum((share.get(name, 0) for share in stated), 0) for name, _ in signature.room),
    )
