"""The mark of Jobs whose pods the API server need not show, and what is shown of all others."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes.admission_review import Review, Verdict
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.kube.webhook_config import gate_policy, match_conditions
from admission.podpolicy import job_pods, pod_view
from admission.review import reviewer
from admission.review.caches import ReviewCaches
from admission.workloads.kinds import foreign_queues
from tests.unit.claimpolicy.policies import a_policy
from tests.unit.kube.conditions import JOB, JOBS, holds, owned
from tests.unit.webhook import patching
from tests.unit.webhook.cases import GATES, RULES, MemoryView, World, a_job, creation, exactly, update

JOB_CONTROLLER = "system:serviceaccount:kube-system:job-controller"


def marked(owner: dict[str, Any], **rest: Any) -> dict[str, Any]:
    """Return a pod that the Job controller makes of a template with the mark."""
    return owned(owner, annotations={names.COMPLETE: "true", **rest.pop("annotations", {})}, **rest)


SHOWN: dict[str, tuple[dict[str, Any], str]] = {
    "a user": (marked(JOB), "alice"),
    "another controller": (marked({**JOB, "kind": "ReplicaSet"}), JOB_CONTROLLER),
    "a Job of another group": (marked({**JOB, "apiVersion": "batch.volcano.sh/v1alpha1"}), JOB_CONTROLLER),
    "no gate": (marked(JOB, gates=[]), JOB_CONTROLLER),
    "the gate of another": (marked(JOB, gates=[{"name": "x"}]), JOB_CONTROLLER),
    "no queue": (marked(JOB, labels={names.QUEUE: ""}), JOB_CONTROLLER),
    "no maker": (marked(JOB, annotations={names.USER: ""}), JOB_CONTROLLER),
    "no mark": (owned(JOB), JOB_CONTROLLER),
    "an empty mark": (marked(JOB, annotations={names.COMPLETE: ""}), JOB_CONTROLLER),
    "a node": (marked(JOB, nodeName="a"), JOB_CONTROLLER),
    "a gang": (marked(JOB, labels={names.GANG: "g"}), JOB_CONTROLLER),
    "claims of its annotation": (marked(JOB, annotations={names.CLAIMS: "x"}), JOB_CONTROLLER),
    "a priority class of Kueue": (marked(JOB, labels={foreign_queues.KUEUE_PRIORITY_CLASS: "x"}), JOB_CONTROLLER),
    "the queue of another system": (marked(JOB, annotations={"volcano.sh/queue-name": "x"}), JOB_CONTROLLER),
}


@pytest.mark.parametrize(("pod", "user"), SHOWN.values(), ids=SHOWN)
def test_a_pod_of_a_job_is_shown_if_it_has(pod: dict[str, Any], user: str) -> None:
    assert holds(match_conditions.NOT_COMPLETE["expression"], pod, user=user)
    if user == JOB_CONTROLLER:
        assert not job_pods.is_complete(pod_view.decode(pod, "ml"))


@pytest.mark.parametrize("gates", [GATES, [{"name": "x"}, *GATES]])
def test_a_complete_pod_of_a_job_is_not_shown_since_the_webhook_would_let_it_in_as_it_is(gates: list[Any]) -> None:
    pod = marked(JOB, gates=gates, labels={"app": "x"}, annotations={"note": "x"})
    view = MemoryView(World().queue("team-a").build())

    assert not holds(match_conditions.NOT_COMPLETE["expression"], pod, user=JOB_CONTROLLER)
    assert job_pods.is_complete(pod_view.decode(pod, "ml"))
    assert reviewer.mutate(creation(pod, username=JOB_CONTROLLER), view, caches=ReviewCaches()).patch == ()
    verdict = reviewer.validate(creation(pod, username=JOB_CONTROLLER), view, rules=RULES, caches=ReviewCaches())
    assert verdict.denial is None


def test_a_change_of_a_complete_pod_is_shown() -> None:
    assert holds(match_conditions.NOT_COMPLETE["expression"], marked(JOB), marked(JOB), user=JOB_CONTROLLER)


def of_job(job: dict[str, Any]) -> Review:
    return creation(job, group="batch", resource="jobs", kind="Job")


Half = Callable[..., Verdict]
HALVES = {"with its maker": reviewer.mutate, "with its queue": reviewer.hold}


def answered(half: Half, job: dict[str, Any], snapshot: Snapshot, *, synced: bool = True, trace: str = "") -> Any:
    """Return a new Job as a webhook leaves it."""
    verdict = half(replace(of_job(job), trace=trace), MemoryView(snapshot, synced), caches=ReviewCaches())
    assert verdict.denial is None
    return patching.applied(job, verdict.patch)


def marks(job: dict[str, Any]) -> bool:
    return names.COMPLETE in (job["spec"]["template"]["metadata"].get("annotations") or {})


def own_labels(job: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {**job, "metadata": {**job["metadata"], "labels": labels}}


QUEUED = a_job(labels={names.QUEUE: "team-a"})
NEW_JOBS: dict[str, tuple[World, dict[str, Any], Half, bool]] = {
    "names its queue": (World().queue("team-a"), QUEUED, reviewer.mutate, True),
    "names it in its own labels": (
        World().queue("team-a"),
        own_labels(a_job(metadata=None), **{names.QUEUE: "team-a"}),
        reviewer.hold,
        True,
    ),
    "is held by the default queue": (
        World().queue("team-a", default=True, holdAt="Workload"),
        a_job(metadata=None),
        reviewer.hold,
        True,
    ),
    "enters the default queue of the time": (
        World().queue("team-a", default=True),
        a_job(metadata=None),
        reviewer.mutate,
        False,
    ),
    "enters none": (World().queue("team-a"), a_job(), reviewer.mutate, False),
    "names a queue that there is not": (
        World().queue("team-a"),
        a_job(labels={names.QUEUE: "b"}),
        reviewer.mutate,
        False,
    ),
    "names a gang": (
        World().queue("team-a"),
        a_job(labels={names.QUEUE: "team-a", names.GANG: "g"}),
        reviewer.mutate,
        False,
    ),
}


@pytest.mark.parametrize(("world", "job", "half", "complete"), NEW_JOBS.values(), ids=NEW_JOBS)
def test_the_pods_of_a_job_are_complete_if_it(world: World, job: dict[str, Any], half: Half, complete: bool) -> None:
    patched = answered(half, job, world.build())

    pod = dict(job_pods.body(patched, "ml"))
    assert pod["metadata"]["annotations"][names.USER] == "alice"
    conditions = [one["expression"] for one in gate_policy.policy(namespace="m")["matchConditions"]]
    assert all(holds(one, pod, user=JOB_CONTROLLER) for one in conditions) is complete
    assert holds(match_conditions.NOT_COMPLETE["expression"], pod, user=JOB_CONTROLLER)
    gated = {**pod, "spec": {**pod["spec"], "schedulingGates": GATES}}
    assert not complete or not holds(match_conditions.NOT_COMPLETE["expression"], gated, user=JOB_CONTROLLER)
    assert answered(half, patched, world.build()) == patched, "asked again"
    assert complete or patched["spec"]["template"]["metadata"].get("labels") == job["spec"]["template"].get(
        "metadata", {}
    ).get("labels"), "its queue is not fixed"


@pytest.mark.parametrize(("world", "job", "half", "complete"), NEW_JOBS.values(), ids=NEW_JOBS)
def test_a_job_with_the_mark_is_shown_once_and_each_change_of_it(
    world: World, job: dict[str, Any], half: Half, complete: bool
) -> None:
    patched = answered(half, job, world.build())

    defaulted = own_labels(patched, **(patched["spec"]["template"]["metadata"].get("labels") or {}))
    for stored in (patched, defaulted):
        assert holds(match_conditions.NOT_MARKED, stored, resource=JOBS) is not complete
    assert holds(match_conditions.NOT_MARKED, patched, patched, resource=JOBS), "a change is shown"
    assert holds(match_conditions.NAMED, job, patched)
    replaced = update(patched, job, group="batch", resource="jobs", kind="Job")
    restored = reviewer.mutate(replaced, MemoryView(world.build()), caches=ReviewCaches()).patch
    assert patching.applied(job, restored)["spec"]["template"] == patched["spec"]["template"]


GATED = a_job(labels={names.QUEUE: "team-a"}, annotations={"note": "x"})
MARKED = a_job(labels={names.QUEUE: "team-a"}, annotations={names.USER: "alice", names.COMPLETE: "true"})
UNMARKED = a_job(labels={names.QUEUE: "team-a"}, annotations={names.USER: "alice"})
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "the mark is added": (UNMARKED, MARKED, False),
    "the mark and a maker are added": (GATED, MARKED, False),
    "the mark is taken out": (MARKED, UNMARKED, True),
    "the mark is changed": (MARKED, a_job(annotations={names.USER: "alice", names.COMPLETE: "yes"}), True),
    "all is taken out": (MARKED, a_job(metadata=None), True),
}


@pytest.mark.parametrize(("old", "new", "complete"), CHANGES.values(), ids=CHANGES)
def test_a_change_of_a_suspended_job_leaves_the_mark_as_the_webhook_made_it(
    old: dict[str, Any], new: dict[str, Any], complete: bool
) -> None:
    """Else its author could have pods not shown that the webhook found to be too much work, or would refuse."""
    assert holds(match_conditions.NAMED, new, old)
    review = update(old, new, group="batch", resource="jobs", kind="Job")
    changed = patching.applied(new, reviewer.mutate(review, MemoryView(TEAM_A), caches=ReviewCaches()).patch)

    assert marks(changed) is complete
    was, now = (job["spec"]["template"]["metadata"].get("annotations", {}) for job in (old, changed))
    assert [was.get(key) for key in (names.USER, names.COMPLETE)] == [
        now.get(key) for key in (names.USER, names.COMPLETE)
    ]


@pytest.mark.parametrize("key", [*foreign_queues.PRIORITY_LABELS, *foreign_queues.JOB_LABELS])
def test_a_job_whose_own_labels_name_more_is_shown_with_the_mark_as_well(key: str) -> None:
    for stored in (own_labels(QUEUED, **{names.QUEUE: "team-a", key: "x"}), own_labels(QUEUED, **{key: "x"})):
        marked = answered(reviewer.mutate, stored, World().queue("team-a", aliases=["x"]).build())

        assert holds(match_conditions.NOT_MARKED, marked, resource=JOBS)


@pytest.mark.parametrize("key", foreign_queues.PRIORITY_LABELS)
def test_the_pods_of_a_job_get_its_own_priority_class_and_its_author_is_warned_of_an_unknown_one(key: str) -> None:
    snapshot = World().queue("team-a", priorityClasses=[{"name": "high", "value": 100}]).build()

    stored = {
        name: answered(
            reviewer.hold,
            answered(reviewer.mutate, own_labels(QUEUED, **{names.QUEUE: "team-a", key: name}), snapshot),
            snapshot,
        )
        for name in ("high", "typo")
    }

    assert stored["high"]["spec"]["template"]["metadata"]["labels"][names.PRIORITY_CLASS] == "high"
    assert not marks(stored["high"]), "its pods are shown, as they have one more label"
    verdict = reviewer.validate(of_job(stored["typo"]), MemoryView(snapshot), rules=RULES, caches=ReviewCaches())
    assert "typo" in "".join(verdict.warnings)


COPY = a_job(labels={names.QUEUE: "team-a"}, annotations={names.USER: "bob", names.COMPLETE: "true", "note": "x"})
EMPTY = a_job(labels={names.QUEUE: "team-a"}, annotations={names.USER: "bob", names.COMPLETE: ""})
REQUESTS = [exactly(f"r{at}", "gpu.example.com") for at in range(32)]
QUOTAS = [{"meter": "gpus", "nominal": "100k"}]
TEAM_A = World().queue("team-a", quotas=QUOTAS).template("t", *REQUESTS).build()


def with_claims(count: int) -> dict[str, Any]:
    """Return a Job of pods with so many claims of 32 requests each."""
    claims = [{"name": f"c{at}", "resourceClaimTemplateName": "t"} for at in range(count)]
    return {**COPY, "spec": {"template": {**COPY["spec"]["template"], "spec": {"resourceClaims": claims}}}}


FORGED: dict[str, tuple[dict[str, Any], Snapshot, dict[str, Any], bool]] = {
    "with complete pods": (COPY, TEAM_A, {}, True),
    "of few claims": (with_claims(8), TEAM_A, {}, True),
    "with an empty mark": (EMPTY, TEAM_A, {}, True),
    "of a queue that there is not": (COPY, World().queue("team-b").build(), {}, False),
    "of a queue that is not open": (COPY, World().queue("team-a", team="b").build(), {}, False),
    "while traces are sent": (COPY, TEAM_A, {"trace": "t"}, False),
    "where there is a policy": (COPY, replace(TEAM_A, policies={"p": a_policy()}), {}, False),
    "of more claims than one review takes": (with_claims(200), TEAM_A, {}, False),
    "of more claims than a pod may have": (with_claims(2_000), TEAM_A, {}, False),
}


@pytest.mark.parametrize(("job", "snapshot", "circumstances", "complete"), FORGED.values(), ids=FORGED)
@pytest.mark.parametrize("half", HALVES.values(), ids=HALVES)
def test_the_mark_that_its_author_wrote_into_a_job_stays_only_if_the_webhook_says_so_too(
    half: Half, job: dict[str, Any], snapshot: Snapshot, circumstances: dict[str, Any], complete: bool
) -> None:
    made = answered(half, job, snapshot, **circumstances)

    assert marks(made) is complete
    assert holds(match_conditions.NOT_MARKED, made, resource=JOBS) is not complete
    kept = dict(made["spec"]["template"]["metadata"]["annotations"])
    assert kept.pop(names.COMPLETE, "true") == "true"
    written = {**job["spec"]["template"]["metadata"]["annotations"], names.USER: "alice"}
    assert kept == {key: text for key, text in written.items() if key != names.COMPLETE}


UNREAD: dict[str, tuple[dict[str, Any], Snapshot, bool]] = {
    "the cluster": (COPY, TEAM_A, False),
    "the namespace": (COPY, replace(TEAM_A, namespaces={}), True),
    "the template": (
        {**COPY, "spec": {"template": {**COPY["spec"]["template"], "spec": {"resourceClaims": "x"}}}},
        TEAM_A,
        True,
    ),
}


@pytest.mark.parametrize(("job", "snapshot", "synced"), UNREAD.values(), ids=UNREAD)
def test_a_mark_is_taken_out_where_nobody_has_read(job: dict[str, Any], snapshot: Snapshot, synced: bool) -> None:
    assert not marks(answered(reviewer.mutate, job, snapshot, synced=synced))
