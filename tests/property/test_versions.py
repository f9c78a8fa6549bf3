"""What is known to have changed since an earlier version is what comparing all of it finds."""

from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from admission.api.snapshot import Merged, Version, changed

KEYS = "abcdef"
CHANGES = 60
HELD = 12
"""So many earlier versions somebody still looks at: more than are remembered."""


@given(seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_the_changes_since_a_version_equal_those_found_by_comparing_everything(seed: int) -> None:
    draw = Random(seed)  # noqa: S311 - a seed for choices
    version = Version[str, object]()
    held: list[Version[str, object]] = []
    for _ in range(CHANGES):
        if draw.random() < 0.4:
            held = [*held, version][-HELD:]
            if draw.random() < 0.3:
                del held[draw.randrange(len(held))]
            version = Version(version)
        key = draw.choice(KEYS)
        if key in version and draw.random() < 0.4:
            version.drop(key)
        else:
            version.put(key, draw.choice((object(), version.get(key) or object())))

        for before in held:
            assert sorted(changed(before, version)) == sorted(changed(dict(before), dict(version)))


MANY = 2 * Version.PART
"""So many objects that versions share a base, and then differ from it in so many that one gets its own."""


@given(seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_a_version_has_what_a_copy_with_the_same_changes_has(seed: int) -> None:
    draw = Random(seed)  # noqa: S311 - a seed for choices
    version, copy = Version[int, object](), dict[int, object]()
    held: list[tuple[Version[int, object], dict[int, object]]] = []
    for at in range(3 * MANY):
        key = at if at < MANY else draw.randrange(MANY + 3)
        if key in copy and draw.random() < 0.3:
            version.drop(key)
            del copy[key]
        else:
            copy[key] = object()
            version.put(key, copy[key])
        if draw.random() < 0.2:
            held.append((version, dict(copy)))
            version = Version(version)
    for shown, expected in (*held, (version, copy)):
        assert shown == expected
        assert len(shown) == len(expected)
        assert sorted(shown) == sorted(shown.keys()) == sorted(expected)
        assert {*map(id, shown.values())} == {*map(id, expected.values())}
        assert [shown[key] for key in shown] == [*shown.values()]
        assert all((key in shown, shown.get(key)) == (key in expected, expected.get(key)) for key in range(MANY + 4))
        assert [*changed(shown, version)] == [*dict.fromkeys(changed(shown, version))]
        assert {*changed(shown, version)} == {*changed(expected, copy)}


def test_objects_keep_their_order_from_version_to_version() -> None:
    first = Version[int, str]()
    for key in range(MANY):
        first.put(key, "")
    second = Version(first)
    second.put(3, "new")
    second.put(MANY, "came")
    second.drop(5)

    assert [*second] == [*(key for key in range(MANY) if key != 5), MANY]
    assert [*second.items()][3:5] == [(3, "new"), (4, "")]
    with pytest.raises(KeyError):
        second.drop(5)
    with pytest.raises(KeyError):
        second[5]


@given(seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_a_mapping_merged_of_several_equals_one_merged_anew(seed: int) -> None:
    draw, merged = Random(seed), Merged[str, object]()  # noqa: S311 - a seed for choices
    parts: list[dict[str, object]] = [{}, {}]
    before: Mapping[str, object] = {}
    for _ in range(CHANGES):
        at, key = draw.randrange(2), draw.choice(KEYS)
        parts[at] = {name: one for name, one in parts[at].items() if name != key}
        if draw.random() < 0.6:
            parts[at][key] = object()
        now = merged.update(*parts)

        assert now == {**parts[0], **parts[1]}
        assert sorted(changed(before, now)) == sorted(changed(dict(before), dict(now)))
        assert merged.update(*map(dict, parts)) is now
        before = now


def test_a_version_compares_touched_keys_only() -> None:
    before = Version[str, object]()
    for key in KEYS:
        before.put(key, object())
    after = Version(before)
    after.put("a", object())
    after.put("b", before["b"])
    after.drop("c")

    assert [*(after.since(before) or ())] == ["a", "b", "c"]
    assert changed(before, after) == ["a", "c"]


def test_of_a_version_that_is_not_known_everything_is_compared() -> None:
    stranger = {"a": object()}

    assert Version[str, object]().since(stranger) is None
    assert changed(stranger, Version[str, object]()) == ["a"]


def test_an_earlier_version_that_somebody_keeps_does_not_gather_keys_for_ever() -> None:
    version = Version[int, object]()
    for key in range(MANY):
        version.put(key, object())
    kept = version
    for key in range(10 * MANY):
        version = Version(version)
        version.drop(key)
        version.put(key + MANY, object())

    assert all(len(keys) <= MANY + 2 for _, keys in version.touched)
    assert sorted(changed(kept, version)) == [*range(MANY), *range(10 * MANY, 11 * MANY)]
