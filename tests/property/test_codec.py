"""The fast way to read a review finds what the thorough one does."""

import copy
from typing import Any

from hypothesis import given, strategies as st

from admission.api.kubernetes import admission_review
from admission.api.kubernetes.admission_review import Review
from admission.api.values import names
from admission.errors import MalformedObjectError
from admission.webhook import codec
from tests.bench import cluster
from tests.unit.webhook.test_codec import arrival_of

PLACES = [
    ("kind",),
    ("apiVersion",),
    ("request",),
    ("request", "uid"),
    ("request", "kind"),
    ("request", "operation"),
    ("request", "resource"),
    ("request", "resource", "group"),
    ("request", "resource", "version"),
    ("request", "resource", "resource"),
    ("request", "subResource"),
    ("request", "namespace"),
    ("request", "userInfo"),
    ("request", "userInfo", "groups"),
    ("request", "oldObject"),
    ("request", "dryRun"),
    ("request", "object"),
    ("request", "object", "metadata"),
    ("request", "object", "metadata", "labels"),
    ("request", "object", "metadata", "annotations"),
    ("request", "object", "metadata", "labels", names.QUEUE),
    ("request", "object", "spec", "schedulingGates"),
    ("request", "object", "spec", "nodeName"),
    ("request", "object", "spec", "resourceClaims"),
    ("request", "object", "metadata", "ownerReferences"),
    ("request", "object", "spec", "containers"),
    ("request", "object", "spec", "containers", 0, "resources"),
    ("request", "object", "spec", "containers", 0, "resources", "requests"),
    ("request", "object", "spec", "containers", 0, "resources", "requests", "example.com/gpu"),
    ("request", "object", "spec", "initContainers"),
    ("request", "object", "spec", "overhead"),
]

VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [None, "", "x", 1, True, 1.5, [], ["x"], [None], {}, {"a": "b"}, [{}], [{"name": "x"}]]
)

REVIEW = cluster.reviews("validate")[0]


@given(place=st.sampled_from(PLACES), value=VALUES, drop=st.booleans())
def test_the_fast_path_reads_a_review_as_the_thorough_decoder_does(place: Any, value: Any, drop: bool) -> None:
    sent = copy.deepcopy(REVIEW)
    *parents, last = place
    target = sent
    for step in parents:
        target = target[step]
    if drop:
        target.pop(last, None)
    else:
        target[last] = value

    found = codec.read(sent)

    if found is not None:
        try:
            wanted = admission_review.decode(sent)
        except MalformedObjectError as error:
            raise AssertionError(f"the thorough way refuses it: {error}") from error
        assert arrival_of(found) == arrival_of(wanted)
        assert found.full_object() == wanted.full_object()
        for field in set(Review.__dataclass_fields__) - {"obj", "whole", "work"}:
            assert getattr(found, field) == getattr(wanted, field)
