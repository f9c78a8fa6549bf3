"""What is derived from a snapshot, kept from one cycle to the next and derived again only where its inputs changed.

Objects of a snapshot are never changed in place, and one that did not change is the same object in the next snapshot
(`kube.cache.indexer`). So identity says in no time whether an input is what it was, and a value that was derived from
the same inputs still holds. Every user declares what a value is derived from; a cache whose inputs are not named here
cannot be checked. The law is tested once for all users, in `tests/property/test_incremental.py`: for any sequence of
changes, what is kept equals what is derived from scratch.

Engines that find dependencies by themselves pay for every read; here the paths of a cycle read millions of values.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from admission.api.snapshot import changed

A = TypeVar("A")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


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
        if kept is not None and self._are_same(kept.inputs, inputs):
            return kept.value
        self._kept.pop(key, None)
        value = make()
        self._kept[key] = _Kept(inputs, value)
        return value

    def keep_only(self, keys: Collection[K]) -> None:
        """Forget the values of all other keys, which bounds the memo by what there is."""
        if len(self._kept) > len(keys) or self._kept.keys() - set(keys):
            self._kept = {key: kept for key, kept in self._kept.items() if key in keys}

    def _are_same(self, before: tuple[object, ...], now: tuple[object, ...]) -> bool:
        return len(before) == len(now) and all(
            one is other or (self._by_value and one == other) for one, other in zip(before, now, strict=True)
        )


class Derived(Generic[K, A, V]):
    """A mapping derived from another one key by key: `make(key, value)`, or nothing where that is None.

    `values` is another mapping object only if a value changed, so that it can be the input of what is derived from it.
    """

    def __init__(self, make: Callable[[K, A], V | None]) -> None:
        self._make = make
        self._source: Mapping[K, A] = {}
        self.values: Mapping[K, V] = {}

    def update(self, source: Mapping[K, A]) -> list[K]:
        """Derive again what belongs to values that are other objects than before. Return the keys of these.

        Where `make` raises, the mapping stays what it was derived from before.
        """
        keys = changed(self._source, source)
        made = {key: self._make(key, source[key]) for key in keys if key in source}
        if any(made.get(key) is not self.values.get(key) for key in keys):
            values = dict(self.values)
            for key in keys:
                values.pop(key, None)
            values.update((key, value) for key, value in made.items() if value is not None)
            self.values = values
        self._source = source
        return keys


class Inverted(Generic[K, A, V]):
    """Which keys of a mapping name a value: `values(source[key])` turned round, kept in step with the mapping.

    A value that the same keys name as before has the same set object.
    """

    def __init__(self, values: Callable[[A], Iterator[V]]) -> None:
        self._values = values
        self._source: Mapping[K, A] = {}
        self._keys: dict[V, dict[K, int]] = {}
        self.keys: Mapping[V, frozenset[K]] = {}

    def update(self, source: Mapping[K, A]) -> None:
        """Follow the changes of the mapping."""
        keys, touched = changed(self._source, source), dict[V, None]()
        for key in keys:
            for value in self._values(self._source[key]) if key in self._source else ():
                touched[value] = None
                self._count(value, key, -1)
            for value in self._values(source[key]) if key in source else ():
                touched[value] = None
                self._count(value, key, 1)
        self._source = source
        if touched:
            self.keys = {**self.keys, **{value: self._set(value) for value in touched}}
            for value in touched:
                if not self.keys[value]:
                    del self._keys[value]
            self.keys = {value: keys_ for value, keys_ in self.keys.items() if keys_}

    def _count(self, value: V, key: K, times: int) -> None:
        counts = self._keys.setdefault(value, {})
        counts[key] = counts.get(key, 0) + times
        if not counts[key]:
            del counts[key]

    def _set(self, value: V) -> frozenset[K]:
        before, now = self.keys.get(value), frozenset(self._keys.get(value, ()))
        return before if before is not None and before == now else now
