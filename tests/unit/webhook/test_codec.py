"""The quick way and the thorough way read and write the same."""

import base64
import json
from typing import Any

import pytest

from admission.api.kubernetes import admission_review
from admission.api.kubernetes.admission_review import ALLOWED, Review, Verdict
from admission.api.values import names
from admission.api.values.reasons import Denial, DenyReason
from admission.podpolicy import pod_view
from admission.webhook import codec
from tests.bench import cluster


def arrival_of(review: Review) -> pod_view.PodView:
    return pod_view.decode(review.obj, review.namespace)


@pytest.mark.parametrize("endpoint", ["mutate", "validate"])
def test_ordinary_reviews_take_the_fast_path_of_the_codec(endpoint: str) -> None:
    for sent in cluster.reviews(endpoint)[:4]:
        found, wanted = codec.read(sent), admission_review.decode(sent)

        assert found is not None
        assert arrival_of(found) == arrival_of(wanted)
        assert found.full_object() == wanted.full_object()
        for field in set(Review.__dataclass_fields__) - {"obj", "whole", "work"}:
            assert getattr(found, field) == getattr(wanted, field)


@pytest.mark.parametrize("body", [None, [], {}, "x", 1, [[]], {"kind": {}}])
def test_an_unusual_review_is_left_to_the_thorough_decoder(body: Any) -> None:
    assert codec.read(body) is None


VERDICTS = {
    "allowed": ALLOWED,
    "patched": Verdict(patch=({"op": "add", "path": "/spec/schedulingGates", "value": [{"name": names.GATE}]},)),
    "patched with letters of all kinds": Verdict(patch=({"op": "add", "path": "/ü", "value": '"\\é\n'},)),
    "noted": Verdict(annotations={"queue": "team-a"}),
    "warned": Verdict(warnings=("mind the gap",)),
    "denied": Verdict(denial=Denial(DenyReason.NEVER_FITS, "never")),
}


@pytest.mark.parametrize("verdict", VERDICTS.values(), ids=VERDICTS)
def test_the_fast_path_writes_the_same_answer_as_the_thorough_encoder(verdict: Verdict) -> None:
    written, wanted = codec.write("u-1", verdict), admission_review.encode("u-1", verdict)

    if verdict.denial is not None or verdict.warnings:
        assert written is None
        return
    assert written is not None
    assert read_again(json.loads(written)) == read_again(wanted)


def read_again(answer: Any) -> Any:
    """Return the answer with its patch as JSON, since that may be written in several ways."""
    response = dict(answer["response"])
    if "patch" in response:
        response["patch"] = json.loads(base64.b64decode(response["patch"]))
    return {**answer, "response": response}
