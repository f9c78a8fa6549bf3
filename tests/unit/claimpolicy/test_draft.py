"""The value at the end of a way through an object, and an object while it is changed."""

from typing import Any

import pytest

from admission.claimpolicy import draft
from admission.claimpolicy.draft import Draft, JsonPath

OBJECT = {"list": [{"x": 1}, None], "text": "abc", "object": {"0": "zero"}}

FOUND: dict[str, tuple[JsonPath, Any]] = {
    "in an element of a list": (("list", 0, "x"), 1),
    "in no element of a list": (("list", 2), None),
    "by a key in a list": (("list", "x"), None),
    "by an index in an object": (("object", 0), None),
    "in a text": (("text", 0), None),
    "in null": (("list", 1, "x"), None),
    "under a key that is missing": (("object", "x", "y"), None),
    "at the object itself": ((), OBJECT),
}


@pytest.mark.parametrize(("way", "value"), FOUND.values(), ids=FOUND)
def test_a_value_is_found_at_a_path_of_a_document(way: JsonPath, value: Any) -> None:
    assert draft.value_at(OBJECT, *way) == value


def test_a_draft_holds_the_values_put_and_leaves_the_sent_object_unchanged() -> None:
    made = Draft(OBJECT)

    made.put(("list", 0, "y"), 2)
    made.put(("list", draft.END), 3)
    made.put(("new", "list", draft.END), 4)

    assert made.obj == {**OBJECT, "list": [{"x": 1, "y": 2}, None, 3], "new": {"list": [4]}}
    assert [step["path"] for step in made.patch] == ["/list/0/y", "/list/-", "/new"]
    assert OBJECT == {"list": [{"x": 1}, None], "text": "abc", "object": {"0": "zero"}}


def test_a_field_dropped_from_a_draft_is_removed_from_its_object_only() -> None:
    made = Draft(OBJECT)

    made.drop(("list", 0, "x"))

    assert made.obj == {**OBJECT, "list": [{}, None]}
    assert [step["op"] for step in made.patch] == ["remove"]
