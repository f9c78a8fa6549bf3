"""Pods from files are refused for what the API server refuses, with the field that is at fault."""

from typing import Any

import pytest

from admission.api.validation import pods as validation
from tests.unit.api import pods
from tests.unit.api.cases import Json


@pytest.mark.parametrize(("obj", "field"), pods.REFUSED.values(), ids=pods.REFUSED)
def test_an_invalid_pod_has_just_the_problem_of_its_invalid_field(obj: Json, field: str) -> None:
    assert [problem.field for problem in validation.problems(obj["spec"], "spec")] == [field]


@pytest.mark.parametrize("obj", pods.GOOD.values(), ids=pods.GOOD)
def test_a_valid_pod_has_no_problems(obj: Json) -> None:
    assert validation.problems(obj["spec"], "spec") == ()


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
    assert [problem.message for problem in validation.problems(obj["spec"], "spec")] == [words]


@pytest.mark.parametrize("wrong", [None, 1, [], "x", [1], {"a": 1}], ids=str)
@pytest.mark.parametrize("field", ["containers", "initContainers", "resourceClaims", "resources"])
def test_what_is_of_another_type_is_told_and_breaks_nothing(field: str, wrong: Any) -> None:
    spec = {**pods.pod()["spec"], field: wrong}

    validation.problems(spec, "spec")
