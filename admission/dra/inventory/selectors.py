"""The devices that CEL selectors of classes and requests select, cached by CEL text and slice version.

A `Selectors` lives as long as the process and is passed in by the caller that plans: answers depend only on CEL texts
and on a slice's version, so they outlive a cycle. What modules of `dra` derive from these answers is kept with them, so
that it ends with them.

The answer of a text on a slice is a column: one bit per device. Columns of several texts are combined in their order,
so that an error counts only where no earlier text is false; it stops a search only if the search meets the device.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from admission.api.kubernetes.devices import Device, Slice
from admission.api.snapshot import changed
from admission.cel.core.errors import CompileError, EvaluationError
from admission.device_cel import bitsets, environment, programs
from admission.device_cel.parse_cache import ParseCache
from admission.dra.inventory.pools import InventoryDevice, NodeInventory
from admission.incremental import Memo

Texts = tuple[str, ...]
"""CEL texts in order: the class's, then the request's."""

Value = programs.DeviceValue | programs.UnreadableDevice

Answer = bool | str
"""Whether all texts are true; the error if one fails and no earlier one is false."""


MOST_COLUMNS = 96
"""The most columns kept per slice, of single and combined texts, before those not in use are dropped."""

PART_OLD = 8
"""Answers on slices that are gone are dropped once one of so many nodes has changed since the last time."""

MOST_KEEPS = 64
"""How many calls of `Selectors.keep` may pass before they are, however few nodes have changed."""

MOST_PROGRAMS = 1_024
"""The most compiled texts kept before those not in use are dropped."""


class Column(NamedTuple):
    """The answers of texts on the devices of a slice, as bitsets: bit i is the device at place i.

    yes: all texts are true. bad: evaluation stops with an error, given by `Selectors.error`. No bit is in both.
    """

    yes: int
    bad: int


@dataclass(slots=True)
class _Seen:
    """The answers on one version of a slice. The slice is kept, so that no other object takes its id."""

    slice: Slice
    columns: dict[Texts, Column]
    """By texts, single and combined; that of no texts is there from the start."""
    unreadable: int | None = None
    """The devices on which every text fails; computed with the first column."""


class Selectors:
    """Compiled selectors and their answers, for one version of Kubernetes and its feature gates.

    Rule: only this class changes answers and programs, and only `device_signature.build` writes `signatures`.
    """

    def __init__(self, profile: environment.Profile = environment.DEFAULT) -> None:
        self.profile = profile
        self._parse_cache = ParseCache()
        self._programs: dict[str, programs.Program | CompileError] = {}
        self._seen: dict[object, _Seen] = {}
        self._by_identity: dict[int, _Seen] = {}
        """The same by id of the slice that each keeps: the fast path when nothing has changed."""
        self._columns: dict[Column, Column] = {}
        self.signatures: dict[Any, Any] = {}
        """The `DeviceSignatures` of `device_signature`, by need, the least recently used first."""
        self.kinds: Memo[Hashable, Any] = Memo()
        """What `device_kinds` has found for these nodes, by what was asked."""
        self._kept: Mapping[Any, NodeInventory] = {}
        """The nodes when answers were dropped the last time."""
        self._keeps = 0
        """How often `keep` was called since."""

    def column(self, texts: Texts, slice_: Slice) -> Column:
        """Return which devices of a slice satisfy every text, and on which evaluation stops with an error."""
        seen = self._by_identity.get(id(slice_)) or self._of(slice_)
        return seen.columns.get(texts) or self._folded(
            texts, seen, bitsets.SliceValues(slice_, self._parse_cache, lists=self.profile.reads_lists)
        )

    def error(self, texts: Texts, slice_: Slice, at: int) -> str:
        """Return the error on a device whose bit is bad; it is evaluated again."""
        value = bitsets.SliceValues(slice_, self._parse_cache, lists=self.profile.reads_lists).at(at)
        for text in texts:
            answer = self._one(text, slice_, at, value)
            if answer is not True:
                return answer or ""
        return ""

    def answer(self, texts: Texts, listed: InventoryDevice) -> Answer:
        """Return whether the device satisfies every text, in order; evaluation stops at the first that is false."""
        column = self.column(texts, listed.slice)
        if column.bad >> listed.at & 1:
            return self.error(texts, listed.slice, listed.at)
        return bool(column.yes >> listed.at & 1)

    def keep(self, node_inventories: Mapping[Any, NodeInventory]) -> None:
        """Drop the answers on every slice that none of these nodes sees. Call it once a cycle.

        Those on few slices are dropped later, together with others: a look at all nodes and their devices takes longer
        than all else that follows from one slice that changed.
        """
        self._keeps += 1
        is_old = PART_OLD * len(changed(self._kept, node_inventories)) >= len(node_inventories)
        if is_old or self._keeps > MOST_KEEPS:
            self._forget_slices(node_inventories)
        if len(self.kinds) > MOST_COLUMNS:
            self.kinds = Memo()
        self._forget_texts()

    def _forget_slices(self, node_inventories: Mapping[Any, NodeInventory]) -> None:
        self._kept, self._keeps = node_inventories, 0
        alive = {_version(source) for node_inventory in node_inventories.values() for source in node_inventory.sources}
        self._seen = {key: seen for key, seen in self._seen.items() if key in alive}
        self._by_identity = {id(seen.slice): seen for seen in self._seen.values()}
        kept = {id(node_inventory) for node_inventory in node_inventories.values()}
        for device_signatures in self.signatures.values():
            device_signatures.keep(kept)

    def _forget_texts(self) -> None:
        """Drop texts that no need uses, if there are many: jobs may bring new texts without end."""
        wanted: set[Texts] = {()}
        for need in self.signatures:
            for parsed in need.parsed_requests:
                wanted.add(parsed.texts)
                wanted.update((text,) for text in parsed.texts)
        for seen in self._seen.values():
            if len(seen.columns) > MOST_COLUMNS:
                seen.columns = {texts: column for texts, column in seen.columns.items() if texts in wanted}
        if len(self._columns) > MOST_PROGRAMS:
            self._columns.clear()
        if len(self._programs) > MOST_PROGRAMS:
            self._programs = {text: known for text, known in self._programs.items() if (text,) in wanted}

    def _of(self, slice_: Slice) -> _Seen:
        key = _version(slice_)
        seen = self._seen.get(key)
        if seen is not None:
            del self._by_identity[id(seen.slice)]
            # The slice was read again. The same version has the same content, but for manifests written by hand.
            if _is_read_again(seen.slice, slice_):
                seen.slice = slice_
            else:
                seen = None
        if seen is None:
            everyone = Column((1 << len(slice_.devices)) - 1, 0)
            seen = self._seen[key] = _Seen(slice_, {(): everyone})
        self._by_identity[id(slice_)] = seen
        return seen

    def _folded(self, texts: Texts, seen: _Seen, values: bitsets.SliceValues) -> Column:
        """Combine the columns of single texts in order, and keep both them and the result."""
        if len(texts) == 1:
            column = seen.columns[texts] = self._shared(self._evaluated(texts[0], seen, values))
            return column
        yes, bad = seen.columns[()]
        for text in texts:
            single = seen.columns.get((text,)) or self._folded((text,), seen, values)
            bad |= yes & single.bad
            yes &= single.yes
        column = seen.columns[texts] = self._shared(Column(yes, bad))
        return column

    def _shared(self, column: Column) -> Column:
        """Return the one object for all equal columns, since slices of equal devices have equal columns."""
        return self._columns.setdefault(column, column)

    def _evaluated(self, text: str, seen: _Seen, values: bitsets.SliceValues) -> Column:
        program = self._compiled(text)
        if isinstance(program, CompileError):
            return Column(0, seen.columns[()].yes)
        if seen.unreadable is None:
            seen.unreadable = bitsets.unreadable(seen.slice, self._parse_cache, lists=self.profile.reads_lists)
        return Column(*bitsets.evaluate(program, values, seen.unreadable))

    def _one(self, text: str, slice_: Slice, at: int, value: Value) -> Answer:
        program = self._compiled(text)
        if isinstance(program, CompileError):
            return f"selector {text!r} does not compile: {program}"
        name = f"{slice_.driver}/{slice_.pool}/{slice_.devices[at].name}"
        if isinstance(value, programs.UnreadableDevice):
            return f"selector {text!r} fails on device {name}: {value.message}"
        try:
            return program.evaluate(value) is True
        except EvaluationError as error:
            return f"selector {text!r} fails on device {name}: {error}"

    def _compiled(self, text: str) -> programs.Program | CompileError:
        if text not in self._programs:
            self._programs[text] = programs.compile_device(text, profile=self.profile, parse_cache=self._parse_cache)
        return self._programs[text]


def _is_read_again(before: Slice, slice_: Slice) -> bool:
    same = before.driver == slice_.driver and len(before.devices) == len(slice_.devices)
    return same and all(map(_is_same, before.devices, slice_.devices))


def _is_same(one: Device, other: Device) -> bool:
    """Return whether two devices are equal to selectors, which do not read taints."""
    return one is other or (
        one.attributes == other.attributes
        and one.capacity == other.capacity
        and one.allows_multiple == other.allows_multiple
    )


def joined(*parts: Iterable[str]) -> Texts:
    """Return the texts of all parts in order."""
    return tuple(text for part in parts for text in part)


def _version(slice_: Slice) -> object:
    """Return a key of a slice's version: UID and resourceVersion, or the object's id if it lacks them."""
    version = (slice_.meta.uid, slice_.meta.resource_version)
    return version if all(version) else id(slice_)
