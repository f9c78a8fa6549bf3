"""Bodies that cannot be read, or would take too long: each is answered, and none by an internal error."""

import base64
import json
from typing import Any

import pytest

from admission.api.kubernetes import admission_review
from admission.api.kubernetes.admission_review import Review, Verdict
from admission.api.values import names
from admission.api.values.reasons import Denial, DenyReason
from admission.api.values.work_budget import Work
from admission.errors import MalformedObjectError, Problem
from admission.review.caches import ReviewCaches
from admission.webhook import handler
from admission.webhook.handler import Answer, Outcome
from tests.property import hostile_reviews
from tests.property.hostile_reviews import RESOURCE
from tests.unit.webhook import cases
from tests.unit.webhook.cases import MemoryView

DOORS = hostile_reviews.doors(MemoryView(hostile_reviews.a_snapshot()), ReviewCaches())


def said(answer: Answer) -> str:
    body = json.loads(answer.body)
    message: str = body["response"]["status"]["message"] if answer.code == 200 else body["message"]
    return message


def claim(**fields: Any) -> bytes:
    obj = {**hostile_reviews.claim_of([]), **fields}
    return hostile_reviews.body("resource.k8s.io", "resourceclaims", obj)


SHAPES: dict[str, tuple[bytes, str]] = {
    "a claim whose metadata is no object": (claim(metadata="x"), "metadata: is a string, an object is expected"),
    "a claim whose labels are no object": (
        claim(metadata={"labels": "x"}),
        "metadata.labels: is a string, an object is expected",
    ),
    "a claim whose spec is no object": (claim(spec=[]), "spec: is a list, an object is expected"),
    "a claim whose devices are no object": (
        claim(spec={"devices": 3}),
        "spec.devices: is an integer, an object is expected",
    ),
}


@pytest.mark.parametrize("door", ["mutate", "validate"])
@pytest.mark.parametrize(("sent", "problem"), SHAPES.values(), ids=SHAPES)
def test_a_claim_of_the_wrong_shape_is_denied_by_name_and_field(door: str, sent: bytes, problem: str) -> None:
    answer = handler.answer(sent, DOORS[door])

    assert answer.outcome is Outcome.DENIED
    assert said(answer).startswith("muster: MalformedClaim: ResourceClaim ")
    assert problem in said(answer)


POD = hostile_reviews.body("", "pods", cases.held(annotations={"x": "y"}))

CHANGED = hostile_reviews.body("", "pods", cases.held(), old=cases.held(), operation="UPDATE")

UNREADABLE: dict[str, tuple[bytes, str]] = {
    "no UTF-8 in a field that is read": (POD.replace(b'"alice"', b'"\xff"'), "it is not UTF-8"),
    "no UTF-8 in a field that is skipped": (POD.replace(b"train:1", b"train:\xff"), "it is not UTF-8"),
    "no UTF-8 in a claim": (claim().replace(b'"c"', b'"\xe9"'), "it is not UTF-8"),
    "a key that comes twice": (claim().replace(b'"name":"c"', b'"name":"c","name":"d"'), "the key 'name' twice"),
    "a key of a new pod that comes twice, in a field that is skipped": (
        POD.replace(b'"image":', b'"image":"x","image":'),
        "the key 'image' twice",
    ),
    "a new pod with half a surrogate pair": (POD.replace(b"train:1", b"train:\\ud800"), "not JSON"),
    "a new pod with a number of many digits": (
        POD.replace(b'"image":', b'"x":' + b"9" * 5_000 + b',"image":'),
        "not JSON",
    ),
    "a key of a changed pod that comes twice": (
        CHANGED.replace(b'"image":', b'"image":"x","image":'),
        "the key 'image' twice",
    ),
    "a changed pod with half a surrogate pair": (CHANGED.replace(b"train:1", b"train:\\ud800"), "not JSON"),
    "a changed pod with a number of many digits": (
        CHANGED.replace(b'"image":', b'"x":' + b"9" * 5000 + b',"image":'),
        "not JSON",
    ),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("sent", "problem"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_is_not_json_is_a_bad_request(door: str, sent: bytes, problem: str) -> None:
    answer = handler.answer(sent, DOORS[door])

    assert (answer.code, answer.outcome) == (400, Outcome.MALFORMED)
    assert problem in said(answer)


def test_what_a_judge_cannot_read_is_denied() -> None:
    def judge(_review: Review) -> Verdict:
        raise MalformedObjectError("Pod", "p", (Problem("spec.x", "is wrong"),))

    answer = handler.answer(POD, judge)

    assert answer.outcome is Outcome.DENIED
    assert said(answer) == "muster: MalformedRequest: Pod p: spec.x: is wrong"


def test_what_takes_a_judge_too_much_work_is_denied() -> None:
    def judge(review: Review) -> Verdict:
        review.work.charge(Work.CONTAINER, 1_000_000)
        raise AssertionError

    answer = handler.answer(POD, judge)

    assert answer.reason == DenyReason.TOO_MUCH_WORK
    assert "1,000,000 containers" in said(answer)


def test_a_message_that_nobody_would_read_is_cut_off() -> None:
    denial = Denial(DenyReason.MALFORMED_REQUEST, "x" * 1_000_000)

    answer = handler.answer(POD, lambda _review: Verdict(denial=denial))

    assert len(said(answer)) < admission_review.LONGEST_MESSAGE + 100


@pytest.mark.parametrize(("door", "make"), hostile_reviews.TABLE.values(), ids=hostile_reviews.TABLE)
def test_what_would_freeze_the_webhook_is_refused_with_the_limit(door: str, make: Any) -> None:
    answer = handler.answer(make(), DOORS[door])

    assert answer.reason == DenyReason.TOO_MUCH_WORK
    assert "at most" in said(answer)
    assert len(answer.body) < 1_000


USERS: dict[str, tuple[dict[str, Any], str]] = {
    "groups": ({"groups": ["g"] * 10_001}, "request.userInfo.groups: are 10,001, and at most 10,000 are read"),
    "extra": (
        {"extra": {f"k{at}": ["v"] for at in range(1_001)}},
        "request.userInfo.extra: has 1,001 keys, and at most 1,000 are read",
    ),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("sent", [POD, CHANGED, claim()], ids=["a new pod", "a changed pod", "a claim"])
@pytest.mark.parametrize(("user", "problem"), USERS.values(), ids=USERS)
def test_a_user_of_very_many_groups_or_keys_is_refused(
    user: dict[str, Any], problem: str, sent: bytes, door: str
) -> None:
    """Reading 80,000 keys took up to 600 ms, since rules of policies read the user, too."""
    answer = handler.answer(hostile_reviews.as_user(sent, **user), DOORS[door])

    assert answer.code == 200
    assert json.loads(answer.body)["response"]["allowed"] is False
    assert problem in said(answer)


# What is large and legitimate is answered as ever.


def test_a_pod_of_fifty_containers_with_claims_is_patched() -> None:
    containers = [{"name": f"c{at}", "resources": {"limits": {RESOURCE: at % 2}}} for at in range(50)]
    annotation = ",".join(f"a{at}=t" for at in range(32))
    pod = cases.held(annotations={names.CLAIMS: annotation, "data": "x" * 600_000}, containers=containers)

    answer = handler.answer(hostile_reviews.body("", "pods", pod), DOORS["mutate"])

    assert answer.outcome is Outcome.PATCHED
    patch = json.loads(base64.b64decode(json.loads(answer.body)["response"]["patch"]))
    assert sum("/resources/claims" in step["path"] or step["path"].endswith("/resources") for step in patch) >= 50


def test_a_claim_of_many_requests_with_selectors_is_allowed() -> None:
    texts = [
        f'device.attributes["gpu.example.com"].model == "m{at}" && device.capacity["gpu.example.com"].memory'
        f".compareTo(quantity('{at}Gi')) >= 0"
        for at in range(96)
    ]

    answer = handler.answer(hostile_reviews.claim(texts, each=3), DOORS["mutate"])
    assert answer.outcome is Outcome.PATCHED
    answer = handler.answer(hostile_reviews.claim(texts, each=3), DOORS["validate"])
    assert answer.reason not in (DenyReason.TOO_MUCH_WORK, DenyReason.MALFORMED_CLAIM)
