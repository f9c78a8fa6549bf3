"""What exists is named, the nearest first, and never without end."""

import pytest

from admission.api import suggestions

LISTED = {
    "a name like the wanted one comes first": ("visoin", ["audio", "language", "vision"], "vision, audio, language"),
    "names that are not alike are in order": ("x", ["b", "a"], "a, b"),
    "few are named and the others counted": ("x", list("abcdefgh"), "a, b, c, d, e and 3 more"),
    "nothing exists": ("x", [], ""),
    "a name longer than any object's is like none": ("ab" * 200, ["ba", "ab"], "ab, ba"),
}


@pytest.mark.parametrize(("name", "known", "text"), LISTED.values(), ids=LISTED)
def test_names_that_exist_are_listed_nearest_first(name: str, known: list[str], text: str) -> None:
    assert suggestions.listed(name, known) == text


def test_no_more_names_are_compared_than_the_bound() -> None:
    taken = iter(range(10**9))

    suggestions.listed("x", (str(next(taken)) for _ in iter(int, 1)))

    assert next(taken) == suggestions.MOST_COMPARED
