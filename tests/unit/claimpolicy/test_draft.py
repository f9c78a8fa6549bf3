"""The value at the end of a way through an object, and an object while it is changed."""

from typing import Any

import jsonpatch
import pytest

from admission.api.values.work_budget import Work, WorkBudget
from admission.claimpolicy import draft
from admission.claimpolicy.draft import Draft, JsonPath
from admission.errors import MalformedObjectError

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


def test_a_list_is_extended_in_one_operation() -> None:
    made = Draft({"spec": {"list": [1]}})

    made.extend(("spec", "list"), [2, 3])
    made.extend(("spec", "new", "list"), [4])
    made.extend(("spec", "empty"), [])

    assert made.obj == {"spec": {"list": [1, 2, 3], "new": {"list": [4]}}}
    assert jsonpatch.apply_patch({"spec": {"list": [1]}}, list(made.patch)) == made.obj
    assert [step["path"] for step in made.patch] == ["/spec/list", "/spec/new"]


def test_objects_on_the_way_of_many_changes_are_copied_once() -> None:
    made = Draft({"list": [{"n": at} for at in range(3)]})
    made.put(("list", 0, "x"), 1)
    copied, untouched = made.obj["list"], made.obj["list"][2]

    made.put(("list", 1, "x"), 2)
    made.drop(("list", 0, "n"))

    assert made.obj["list"] is copied
    assert made.obj["list"][2] is untouched
    assert made.obj == {"list": [{"x": 1}, {"n": 1, "x": 2}, {"n": 2}]}


def test_what_was_put_in_stays_as_it_is_in_the_patch() -> None:
    put: dict[str, Any] = {"a": {}}
    made = Draft({})

    made.put(("labels",), put)
    made.put(("labels", "a", "b"), 1)
    made.put(("labels", "c"), 2)
    made.put(("labels", "c"), 3)

    assert put == {"a": {}}
    assert made.obj == {"labels": {"a": {"b": 1}, "c": 3}}
    assert jsonpatch.apply_patch({}, list(made.patch)) == made.obj


MALFORMED: dict[str, tuple[Any, JsonPath, str]] = {
    "a text in place of an object": ({"metadata": "x"}, ("metadata", "labels", "a"), "metadata: is a string"),
    "a list in place of an object": ({"metadata": {"labels": []}}, ("metadata", "labels", "a"), "labels: is a list"),
    "a number within a list": ({"list": [1]}, ("list", 0, "a"), r"list\[0\]: is an integer"),
    "no object at all": ("x", ("metadata", "labels"), r"\.: is a string"),
}


@pytest.mark.parametrize(("obj", "path", "message"), MALFORMED.values(), ids=MALFORMED)
def test_a_value_that_cannot_be_changed_is_named(obj: Any, path: JsonPath, message: str) -> None:
    with pytest.raises(MalformedObjectError, match=f"{message}.*, an object is expected"):
        Draft(obj).put(path, "b")


def test_every_change_is_charged() -> None:
    work = WorkBudget()
    made = Draft({"a": 1}, work)
    made.put(("b",), 2)
    made.drop(("a",))

    assert work.spent == 2 * Work.CHANGE.units
