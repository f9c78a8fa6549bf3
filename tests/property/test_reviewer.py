"""Laws of the review: whatever is sent, the answer is a review or says what is wrong, and patches are made once."""

import base64
import copy
import gc
import json
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import jsonpatch
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from admission.api.kubernetes.admission_review import API_VERSION, Review
from admission.api.muster import claim_policies
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.claimpolicy.match import Policies
from admission.errors import RetryError
from admission.review import reviewer
from admission.review.caches import ReviewCaches
from admission.webhook import handler
from admission.webhook.handler import Judge, Outcome
from tests import soaking
from tests.integration.webhook import test_server
from tests.property import hostile_reviews, mutated_reviews, reviews
from tests.unit.webhook import cases
from tests.unit.webhook.cases import RULES, MemoryView, World, exactly

REVIEWS, SOAKED = 400, 50_000
"""Reviews for each of two laws: 800 in `make test`, 100,000 in `make soak`."""

QUICKLY = 60
MANY = {soaking.PROFILE: SOAKED, "thorough": REVIEWS}.get(settings.get_current_profile_name() or "", QUICKLY)
thorough = settings(max_examples=MANY, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def a_snapshot() -> Snapshot:
    """Return a cluster with queues, templates, and a policy that gives every claim something, converts and forbids."""
    cluster_state = World().queue("team-a", quotas=[{"meter": "gpus", "nominal": 8}]).queue("team-b", team="b")
    cluster_state.queue("research", team=None).queue("any", default=True)
    made = (
        cluster_state.template("t", exactly("gpu", "gpu.example.com"))
        .template("big", exactly("gpu", "other", 40))
        .build()
    )
    policy = {
        "metadata": {"name": "p"},
        "spec": {
            "defaults": [
                {"count": 2, "labels": {"a": "b", "example.com/z": "c"}},
                {"deviceClasses": ["gpu.example.com"], "selectors": [{"cel": {"expression": "true"}}]},
            ],
            "conversions": [{"extendedResource": "nvidia.com/gpu", "deviceClassName": "gpu.example.com"}],
            "rules": [
                {"cel": "request.exactly.count <= 8", "message": "m", "action": "Deny"},
                {"cel": "pod.metadata.name != 'x'", "message": "n", "action": "Warn"},
            ],
        },
    }
    known = {field: getattr(made, field) for field in ("namespaces", "queues", "meters", "classes", "templates")}
    return Snapshot(**known, policies={"p": claim_policies.decode(policy)})


VIEW = MemoryView(a_snapshot())
CACHES = ReviewCaches()
DOORS: dict[str, Judge] = {
    "mutate": partial(reviewer.mutate, view=VIEW, caches=CACHES),
    "validate": partial(reviewer.validate, view=VIEW, rules=RULES, caches=CACHES),
}


@contextmanager
def watched() -> Iterator[None]:
    """Raise in the middle of what takes a second of processor time; a busy machine makes no difference.

    Where Hypothesis or coverage trace every line, a second becomes several. What Hypothesis has kept of 50,000 reviews
    takes a collector of garbage a second, too: that is not the door's.
    """
    seconds = 1.0 if sys.gettrace() is None else 5.0

    def interrupt(*_: object) -> None:
        raise AssertionError(f"still not answered after {seconds} s of processor time")

    before = signal.signal(signal.SIGVTALRM, interrupt)
    gc.disable()
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        gc.enable()
        signal.signal(signal.SIGVTALRM, before)


def ensure_well_formed(answer: handler.Answer) -> None:
    """Check that the API server understands an answer, and that it is no fault of ours."""
    said = json.loads(answer.body)
    if answer.code != 200:
        # Only of a namespace that no watch has shown yet nothing can be said; the API server asks again.
        unseen = answer.code == 503 and "has not been seen yet" in said["message"]
        assert unseen or 400 <= answer.code < 500, said
        assert (said["kind"], said["status"], said["code"]) == ("Status", "Failure", answer.code)
        return
    assert (said["apiVersion"], said["kind"]) == (API_VERSION, "AdmissionReview")
    response = said["response"]
    assert isinstance(response["uid"], str)
    assert response["uid"]
    assert isinstance(response["allowed"], bool)
    assert response["allowed"] or response["status"]["message"].startswith("muster: ")
    assert all(isinstance(warning, str) for warning in response.get("warnings", []))
    assert all(isinstance(text, str) for text in response.get("auditAnnotations", {}).values())
    if "patch" in response:
        assert response["patchType"] == "JSONPatch"
        assert json.loads(base64.b64decode(response["patch"], validate=True))


@pytest.mark.usefixtures("cel_grammars")
@pytest.mark.parametrize("door", DOORS)
@thorough
@given(body=reviews.bodies())
def test_any_review_gets_a_well_formed_answer(door: str, body: bytes) -> None:
    with watched():
        answer = handler.answer(body, DOORS[door])

    ensure_well_formed(answer)


MUTATED_REVIEWS = 100_000 if MANY == SOAKED else 500
"""Changed reviews of all kinds: in `make soak`, and else."""


def test_a_changed_review_of_any_kind_is_allowed_or_refused_and_its_patch_fits() -> None:
    """Of every kind that the webhook is registered for, at each of its doors."""
    doors = hostile_reviews.doors(MemoryView(hostile_reviews.a_snapshot()), ReviewCaches())
    outcomes = Counter[tuple[str, Outcome]]()
    for seed in range(MUTATED_REVIEWS):
        door, review = mutated_reviews.review(seed)
        body = json.dumps(review).encode()
        answer = handler.answer(body, doors[door])
        ensure_well_formed(answer)
        outcomes[door, answer.outcome] += 1
        if answer.outcome is Outcome.PATCHED:
            patch = json.loads(base64.b64decode(json.loads(answer.body)["response"]["patch"]))
            assert jsonpatch.apply_patch(json.loads(body)["request"]["object"], patch)

    judged = {(door, outcome) for (door, outcome), times in outcomes.items() if times > MUTATED_REVIEWS // 100}
    assert {("mutate", Outcome.PATCHED), ("hold", Outcome.PATCHED), ("validate", Outcome.ALLOWED)} <= judged
    assert {(door, Outcome.DENIED) for door in doors} <= judged


@settings(max_examples=3)
@given(sent=st.lists(reviews.bodies(), min_size=5, max_size=20))
async def test_any_body_sent_over_https_gets_a_well_formed_answer(sent: list[bytes]) -> None:
    async with test_server.serving(mutate=DOORS["mutate"], validate=DOORS["validate"]) as client:
        for body in sent:
            for door in DOORS:
                code, said = await client.post(f"/{door}", body)
                ensure_well_formed(handler.Answer(code, json.dumps(said).encode(), Outcome.FAILED))


# Patches.


def _asked(resource: str, obj: dict[str, Any]) -> Review:
    groups = {"pods": "", "jobs": "batch"}
    return Review(
        uid="u",
        group=groups.get(resource, "resource.k8s.io"),
        version="v1",
        resource=resource,
        kind="",
        operation="CREATE",
        namespace="ml",
        username="alice",
        obj=obj,
    )


MUTATED = st.sampled_from(
    [
        ("pods", reviews.PODS),
        ("jobs", reviews.JOBS),
        ("resourceclaims", reviews.CLAIMS),
        ("resourceclaimtemplates", reviews.TEMPLATES),
    ]
).flatmap(lambda kind: st.tuples(st.just(kind[0]), kind[1]))


@given(sent=MUTATED)
def test_a_second_review_of_a_patched_object_changes_nothing(sent: tuple[str, dict[str, Any]]) -> None:
    resource, obj = sent
    try:
        first = DOORS["mutate"](_asked(resource, copy.deepcopy(obj)))
    except RetryError:
        return

    after = jsonpatch.apply_patch(obj, list(first.patch))

    assert DOORS["mutate"](_asked(resource, after)).patch == ()
    assert after["spec"].keys() >= obj["spec"].keys()
    if resource == "pods" and first.patch:
        # An amount below nothing, or of a part of one, is left to the API server, which refuses it.
        left = re.findall(
            r'"nvidia.com/gpu": "?[0-9]+"?[,}]',
            json.dumps([one.get("resources") for one in after["spec"]["containers"]]),
        )
        assert not left
        enters = after["metadata"]["labels"].get(names.QUEUE) in ("team-a", "any")
        assert gates_of(after).count(names.GATE) == (1 if enters else gates_of(obj).count(names.GATE))
    if resource == "jobs":
        assert after["spec"]["template"]["metadata"]["annotations"][names.USER] == "alice"


def gates_of(pod: dict[str, Any]) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates") or []]


def test_the_drawn_reviews_are_mutated_and_converted() -> None:
    """Check that what is drawn gets as far as to be judged, so that the laws above are not about refusals alone."""
    assert [one.problems for one in Policies.build(VIEW.known.policies, VIEW.known.namespaces).compiled.values()] == [
        ()
    ]
    pod = cases.a_pod(labels={names.QUEUE: "team-a"})

    assert len(DOORS["mutate"](_asked("pods", pod)).patch) == 2

    resources = {"limits": {"nvidia.com/gpu": "2"}}
    pod = cases.a_pod(labels={names.QUEUE: "team-a"}, containers=[cases.CONTAINER | {"resources": resources}])
    converted = jsonpatch.apply_patch(pod, list(DOORS["mutate"](_asked("pods", pod)).patch))
    assert len(converted["spec"]["resourceClaims"]) == 1
