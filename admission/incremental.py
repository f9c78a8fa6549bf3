"""What is derived from a snapshot, kept from one cycle to the next and derived again only where its inputs changed.

Objects of a snapshot are never changed in place, and one that did not change is the same object in the next snapshot
(`kube.cache.indexer`). So identity says in no time whether an input is what it was, and a value that was derived from
the same inputs still holds. Every user declares what a value is derived from; a cache whose inputs are not named here
cannot be checked. The law is tested once for all users, in `tests/property/test_incremental.py`: for any sequence of
changes, what is kept equals what is derived from scratch.

Engines that find dependencies by themselves pay for every read; here the paths of a cycle read millions of values.
"""

import operator
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from admission.api.snapshot import Version, changed

A = TypeVar("A")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
M = TypeVar("M")


def are_same(one: Sequence[object], other: Sequence[object]) -> bool:
    """Return whether two sequences have the same objects."""
    return one is other or (len(one) == len(other) and all(map(operator.is_, one, other)))


class _Kept(NamedTuple, Generic[V]):
    inputs: tuple[object, ...]
    value: V


class Memo(Generic[K, V]):
    """Values by key, each kept for as long as every object that it was derived from is the same.

    `by_value` lets inputs pass that are other objects of the same value; it costs a comparison for each that is not
    identical, so it is for small inputs that are made again in every cycle. Not for two threads at once.
    """

    def __init__(self, *, by_value: bool = False) -> None:
        self._kept: dict[K, _Kept[V]] = {}
        self._by_value = by_value

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: K, inputs: tuple[object, ...], make: Callable[[], V]) -> V:
        """Return the value of a key, from `make` unless it was made of these inputs before.

        `make` may use nothing that changes but its inputs. Where it raises, nothing is kept for the key.
        """
        kept = self._kept.get(key)
        if kept is not None and (kept.inputs == inputs if self._by_value else are_same(kept.inputs, inputs)):
            return kept.value
        self._kept.pop(key, None)
        value = make()
        self._kept[key] = _Kept(inputs, value)
        return value

    def keep_only(self, keys: Collection[K]) -> None:
        """Forget the values of all other keys, which bounds the memo by what there is."""
        if len(self._kept) > len(keys) or self._kept.keys() - set(keys):
            self._kept = {key: kept for key, kept in self._kept.items() if key in keys}


class Derived(Generic[K, A, V]):
    """A mapping derived from another one key by key: `make(key, value)`, or nothing where that is None.

    `values` is another mapping object only if a value changed, so that it can be the input of what is derived from it.
    """

    def __init__(self, make: Callable[[K, A], V | None]) -> None:
        self._make = make
        self._source: Mapping[K, A] = {}
        self.values: Version[K, V] = Version()

    def update(self, source: Mapping[K, A]) -> list[K]:
        """Derive again what belongs to values that are other objects than before. Return the keys of these.

        Where `make` raises, the mapping stays what it was derived from before.
        """
        keys = changed(self._source, source)
        made = {key: self._make(key, source[key]) for key in keys if key in source}
        if any(made.get(key) is not self.values.get(key) for key in keys):
            values = Version(self.values)
            for key in keys:
                value = made.get(key)
                if value is not None:
                    values.put(key, value)
                elif key in values:
                    values.drop(key)
            self.values = values
        self._source = source
        return keys


class Inverted(Generic[A, V, M]):
    """The members that the values of a mapping name under each target, kept in step with the mapping.

    `pairs(value)` yields target and member: of placements, the claims and the pods that use them, for the users of each
    claim. A target without members is left out; one with the same members as before has the same set object.
    """

    def __init__(self, pairs: Callable[[A], Iterable[tuple[V, M]]]) -> None:
        self._pairs = pairs
        self._source: Mapping[Any, A] = {}
        self._counts: dict[V, dict[M, int]] = {}
        self.members: Version[V, frozenset[M]] = Version()

    def update(self, source: Mapping[Any, A]) -> Mapping[V, frozenset[M]]:
        """Follow the changes of the mapping, and return the members of each target."""
        targets = dict[V, None]()
        for key in changed(self._source, source):
            for mapping, times in ((self._source, -1), (source, 1)):
                for target, member in self._pairs(mapping[key]) if key in mapping else ():
                    targets[target] = None
                    self._count(target, member, times)
        self._source = source
        if targets:
            members = Version(self.members)
            for target in targets:
                found = self._set(target)
                if found:
                    members.put(target, found)
                    continue
                del self._counts[target]
                if target in members:
                    members.drop(target)
            self.members = members
        return self.members

    def _count(self, target: V, member: M, times: int) -> None:
        counts = self._counts.setdefault(target, {})
        counts[member] = counts.get(member, 0) + times
        if not counts[member]:
            del counts[member]

    def _set(self, target: V) -> frozenset[M]:
        before, now = self.members.get(target), frozenset(self._counts[target])
        return before if before is not None and before == now else now
