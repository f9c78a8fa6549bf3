"""What is known to have changed since an earlier version is what comparing all of it finds."""

from random import Random

from hypothesis import given, settings, strategies as st

from admission.api.snapshot import Version, changed

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
