"""The law of everything that is kept from one cycle to the next: incremental equals from scratch.

Snapshots never change in place; a step replaces, adds or removes values, by new mappings or by further versions of one
table, as `kube.cache.indexer` makes them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pytest
from hypothesis import given, strategies as st

from admission.incremental import Derived, Inverted, Memo


@dataclass(frozen=True)
class Thing:
    """A value of a snapshot: `size` is what is derived from it, `uses` whom it names."""

    size: int
    uses: tuple[str, ...] = ()


KEYS = st.sampled_from("abcdef")
THINGS = st.builds(Thing, size=st.integers(0, 3), uses=st.lists(st.sampled_from("xyz"), max_size=3).map(tuple))
STEPS = st.lists(st.dictionaries(KEYS, st.none() | THINGS, max_size=4), max_size=8)
"""Each step: what becomes of some keys; None removes."""


def snapshots(steps: Sequence[Mapping[str, Thing | None]]) -> Iterator[dict[str, Thing]]:
    """Yield one mapping after the other; untouched values are the same objects."""
    now: dict[str, Thing] = {}
    for step in steps:
        now = {key: thing for key, thing in {**now, **step}.items() if thing is not None}
        yield now


def doubled(key: str, thing: Thing) -> tuple[str, int] | None:
    return (key, 2 * thing.size) if thing.size else None


def named(_: str, thing: Thing) -> tuple[str, ...] | None:
    return thing.uses or None


@given(STEPS)
def test_a_derived_mapping_equals_one_that_is_derived_from_scratch(steps: Sequence[Mapping[str, Thing | None]]) -> None:
    kept = Derived(doubled)
    for now in snapshots(steps):
        kept.update(now)
        assert dict(kept.values) == {key: made for key, one in now.items() if (made := doubled(key, one)) is not None}


@given(STEPS)
def test_a_derived_mapping_is_the_same_object_until_a_value_changes(
    steps: Sequence[Mapping[str, Thing | None]],
) -> None:
    kept = Derived(named)
    for now in snapshots(steps):
        before = kept.values
        kept.update(now)
        kept.update(dict(now))
        is_same = len(before) == len(kept.values) and all(before.get(key) is one for key, one in kept.values.items())
        assert (kept.values is before) == is_same


@given(STEPS)
def test_a_derived_mapping_calls_its_rule_for_changed_values_only(steps: Sequence[Mapping[str, Thing | None]]) -> None:
    calls: list[str] = []

    def noted(key: str, thing: Thing) -> int:
        calls.append(key)
        return thing.size

    kept = Derived(noted)
    before: Mapping[str, Thing] = {}
    for now in snapshots(steps):
        calls.clear()
        touched = kept.update(now)
        assert sorted(calls) == sorted(key for key, one in now.items() if before.get(key) is not one)
        assert set(touched) == {key for key in before.keys() | now.keys() if before.get(key) is not now.get(key)}
        before = now


@given(STEPS)
def test_an_inverted_mapping_equals_one_that_is_inverted_from_scratch(
    steps: Sequence[Mapping[str, Thing | None]],
) -> None:
    """Several values may name one member under one target, and one value may do so more than once."""
    kept: Inverted[Thing, str, int] = Inverted(lambda thing: ((name, thing.size) for name in thing.uses))
    for now in snapshots(steps):
        before = kept.members
        found = kept.update(now)
        sizes = {name: frozenset(one.size for one in now.values() if name in one.uses) for name in "xyz"}
        assert dict(found) == {name: members for name, members in sizes.items() if members}
        assert all(found[name] is members for name, members in before.items() if found.get(name) == members)


def summed(thing: Thing) -> int:
    return thing.size + len(thing.uses)


@given(STEPS, st.booleans())
def test_a_memo_gives_what_its_rule_gives_from_scratch(
    steps: Sequence[Mapping[str, Thing | None]],
    by_value: bool,
) -> None:
    memo: Memo[str, int] = Memo(by_value=by_value)
    for now in snapshots(steps):
        for key, thing in now.items():
            assert memo.get(key, (thing, key), partial(summed, thing)) == summed(thing)
        memo.keep_only(now)
        assert len(memo) == len(now)


def test_a_memo_makes_a_value_again_only_for_another_object() -> None:
    memo, calls = Memo[str, int](), list[int]()

    def made() -> int:
        calls.append(1)
        return len(calls)

    one, other = Thing(1), Thing(1)
    assert [memo.get("a", (thing,), made) for thing in (one, one, other, one)] == [1, 1, 2, 3]


def test_a_memo_by_value_takes_an_equal_object_for_the_same() -> None:
    memo = Memo[str, object](by_value=True)
    assert memo.get("a", (Thing(1),), object) is memo.get("a", (Thing(1),), object)
    assert memo.get("a", (Thing(1),), object) is not memo.get("a", (Thing(2),), object)


def test_nothing_is_kept_of_a_rule_that_fails() -> None:
    memo, kept = Memo[str, int](), Derived[str, Thing, int](lambda _, thing: 1 // thing.size)
    kept.update(first := {"a": Thing(1)})

    with pytest.raises(ZeroDivisionError):
        memo.get("a", (), lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        kept.update({**first, "b": Thing(0)})

    assert len(memo) == 0
    assert dict(kept.values) == {"a": 1}
    assert kept.update({**first, "c": Thing(1)}) == ["c"]
