"""Pods from files are refused for what the API server refuses, with the field that is at fault."""

from typing import Any

import pytest

from admission.api.validation.pods import templates as validation
from tests.unit.api import pod_settings, pods
from tests.unit.api.cases import Json

REFUSED, GOOD = pods.REFUSED | pod_settings.REFUSED, pods.GOOD | pod_settings.GOOD


@pytest.mark.parametrize(("obj", "field"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_pod_has_just_the_problem_of_its_invalid_field(obj: Json, field: str) -> None:
    assert [problem.field for problem in validation.problems(obj)] == [field]


@pytest.mark.parametrize("obj", GOOD.values(), ids=GOOD)
def test_a_valid_pod_has_no_problems(obj: Json) -> None:
    assert validation.problems(obj) == ()


@pytest.mark.parametrize(
    ("obj", "words"),
    [
        (pods.using({"name": "g"}), "Not found: 'g': must be one of the names in pod.spec.resourceClaims: gpus"),
        (
            pods.using({"name": "g"}, resourceClaims=[]),
            "Not found: 'g': must be one of the names in pod.spec.resourceClaims which is empty",
        ),
        (pods.asking({pods.GPU: "0.5"}), "Invalid value: 0.5: must be an integer"),
        (
            pods.asking({pods.GPU: "2"}, {pods.GPU: "1"}),
            "Invalid value: 1: must be equal to example.com/gpu limit of 2",
        ),
    ],
    ids=["a claim", "a claim where there is none", "half a GPU", "less GPUs than the limit"],
)
def test_an_invalid_pod_is_reported_in_the_words_of_the_api_server(obj: Json, words: str) -> None:
    assert [problem.message for problem in validation.problems(obj)] == [words]


LISTS = ("containers", "initContainers", "resourceClaims")


@pytest.mark.parametrize(
    ("field", "wrong", "words"),
    [
        *((field, 1, "is an integer, a list is expected") for field in LISTS),
        *((field, "x", "is a string, a list is expected") for field in LISTS),
        *((field, {"a": 1}, "is an object, a list is expected") for field in LISTS),
        *((field, [1], "is an integer, an object is expected") for field in LISTS),
        ("resources", 1, "is an integer, an object is expected"),
        ("resources", "x", "is a string, an object is expected"),
        ("resources", [], "is a list, an object is expected"),
        ("resources", [1], "is a list, an object is expected"),
    ],
    ids=str,
)
def test_a_field_of_another_type_is_told_with_the_type_that_is_expected(field: str, wrong: Any, words: str) -> None:
    first, *_ = validation.problems(pods.pod(**{field: wrong}))

    assert (first.field.partition("[")[0], first.message) == (f"spec.{field}", words)


@pytest.mark.parametrize("field", [*LISTS, "resources"])
def test_null_is_like_a_field_that_is_not_there(field: str) -> None:
    absent = pods.pod()
    absent["spec"].pop(field, None)

    assert validation.problems(pods.pod(**{field: None})) == validation.problems(absent)
