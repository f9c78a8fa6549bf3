"""The conditions under which the API server asks Muster about a pod, as CEL that Muster evaluates itself."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes.admission_review import ALLOWED
from admission.api.values import names
from admission.api.values.names import Held
from admission.kube.webhook_config import match_conditions, webhook_rules
from admission.podpolicy import update as pod_update
from admission.review import reviewer
from admission.review.caches import ReviewCaches
from admission.workloads.kinds import catalog, foreign_queues, pod_labels
from tests.unit.kube.conditions import JOB, JOBS, holds, owned
from tests.unit.scheduling import plan_inputs
from tests.unit.webhook import patching
from tests.unit.webhook.cases import GATES, RULES, MemoryView, World, a_job, a_pod, creation, held

KUEUE, VOLCANO = "kueue.x-k8s.io/pod-group-name", "scheduling.k8s.io/group-name"


def matters(new: dict[str, Any], old: dict[str, Any] | None = None) -> bool:
    """Evaluate the condition for a pod that is created, or changed from `old`."""
    return holds(match_conditions.MATTERS, new, old)


def requesting(*resources: str) -> dict[str, Any]:
    return {"name": "main", "resources": {"requests": dict.fromkeys(resources, "1")}}


CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a gate is taken out": (held(), held(gates=[])),
    "one of two gates is taken out": (held(gates=[*GATES, {"name": "x"}]), held()),
    "a queue is named": (a_pod(), a_pod(labels={names.QUEUE: "q"})),
    "a label of Muster's is taken away": (held(), held(labels={names.QUEUE: "other"})),
    "an annotation of Muster's is changed": (held(), held(annotations={names.USER: "bob"})),
    "a group of Kueue is changed": (held(labels={KUEUE: "one"}), held(labels={KUEUE: "two"})),
    "a PodGroup of Volcano is taken away": (held(annotations={VOLCANO: "one"}), held()),
    "a Job comes to control it": (held(), owned(JOB)),
    "another Job controls it": (owned(JOB), owned({**JOB, "uid": "two"})),
    "no Job controls it any more": (owned(JOB), owned()),
}

OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": (held(), held()),
    "another label": (a_pod(), a_pod(labels={"app": "x"})),
    "another annotation": (owned(JOB), owned(JOB, annotations={"note": "x"})),
    "an owner that controls nothing": (held(), owned({**JOB, "controller": False})),
    "another controller": (held(), owned({**JOB, "kind": "ReplicaSet"})),
    "an owner that does not say whether it controls": (held(), owned({"kind": "Job", "uid": "one"})),
}


@pytest.mark.parametrize(("old", "new"), CHANGES.values(), ids=CHANGES)
def test_a_pod_change_that_matters_to_muster_is_sent_to_the_webhook(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert matters(new, old)


def test_a_resize_is_sent_to_the_webhook() -> None:
    assert holds(match_conditions.MATTERS, held(), held(), subresource="resize")
    assert not holds(match_conditions.MATTERS, held(), held(), subresource="status")


@pytest.mark.parametrize(("old", "new"), OTHERS.values(), ids=OTHERS)
def test_a_pod_change_that_does_not_matter_to_muster_is_not_sent_to_the_webhook(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    assert not matters(new, old)


GANG_KEYS = sorted(
    {*pod_update.FIXED_KEYS, *catalog.IMMUTABLE_KEYS, *catalog.SUBGROUP_KEYS, *catalog.TEMPLATES, *catalog.LEADERS}
)
OTHER_KEYS = sorted({*pod_labels.NUMBERS, *(one.key for one in foreign_queues.QUEUE_KEYS), "app"} - {names.QUEUE_ALIAS})


@pytest.mark.parametrize("field", ["labels", "annotations"])
@pytest.mark.parametrize("key", [*GANG_KEYS, *OTHER_KEYS])
def test_the_changes_that_are_refused_are_those_that_are_sent(key: str, field: str) -> None:
    """A refusal that is never asked for refuses nothing; a change that is sent for nothing slows its author."""
    one: dict[str, Any] = {field: {key: "one"}}
    two: dict[str, Any] = {field: {key: "two"}}
    before, after = held(**one), held(**two)

    assert matters(after, before) == (plan_inputs.change(before, after) is not None)


def test_every_new_pod_but_mirror_pods_is_sent_to_the_webhook() -> None:
    mirror = {"kubernetes.io/config.mirror": "x"}

    assert matters(a_pod())
    assert matters(a_pod(annotations=mirror))
    assert not matters(a_pod(annotations=mirror, nodeName="n"))


KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"


def a_workload(queue: str | None = None, *, key: str = names.QUEUE, **spec: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "train"}
    if queue is not None:
        metadata["labels"] = {"app": "x", key: queue}
    return {"metadata": metadata, "spec": spec} if spec else {"metadata": metadata}


TEMPLATE: dict[str, Any] = {"metadata": {"labels": {names.QUEUE: "a"}}}

NAMING: dict[str, tuple[dict[str, Any], dict[str, Any] | None, bool]] = {
    "a new one": (a_workload("a"), None, True),
    "a new one with Kueue's label": (a_workload("a", key=KUEUE_QUEUE), None, True),
    "a new one that names none": (a_workload(), None, False),
    "one that loses its label": (a_workload(), a_workload("a"), True),
    "one that keeps it": (a_workload("a"), a_workload("a"), True),
}


@pytest.mark.parametrize(("new", "old", "named"), NAMING.values(), ids=NAMING)
def test_a_workload_that_names_a_queue_is_told_from_others(
    new: dict[str, Any], old: dict[str, Any] | None, named: bool
) -> None:
    assert holds(match_conditions.NAMES_QUEUE, new, old) is named
    assert holds(match_conditions.NAMES_NONE, new, old) is not named


CHANGED: dict[str, tuple[dict[str, Any], dict[str, Any] | None, bool]] = {
    "a new one": (a_workload("a"), None, True),
    "another queue": (a_workload("b"), a_workload("a"), True),
    "no queue any more": (a_workload(), a_workload("a"), True),
    "another queue by Kueue's label": (a_workload("b", key=KUEUE_QUEUE), a_workload("a", key=KUEUE_QUEUE), True),
    "another template": (a_workload("a", template=TEMPLATE), a_workload("a", template={}), True),
    "a template where none was": (a_workload("a", template=TEMPLATE), a_workload("a"), True),
    "another scale": (
        a_workload("a", template=TEMPLATE, replicas=3),
        a_workload("a", template=TEMPLATE, replicas=2),
        False,
    ),
    "another spec, of a kind without a template": (a_workload("a", tasks=[]), a_workload("a", tasks=[1]), True),
    "the same, without a spec": (a_workload("a"), a_workload("a"), False),
    "the same spec": (a_workload("a", tasks=[1]), a_workload("a", tasks=[1]), False),
}


@pytest.mark.parametrize(("new", "old", "sent"), CHANGED.values(), ids=CHANGED)
def test_a_workload_is_sent_when_it_is_made_or_its_templates_or_queue_change(
    new: dict[str, Any], old: dict[str, Any] | None, sent: bool
) -> None:
    assert holds(match_conditions.RENAMED, new, old) is sent


DEPLOYMENTS, CRONJOBS = ("apps", "deployments"), ("batch", "cronjobs")
READ = {
    "labels": (names.QUEUE, names.PRIORITY_CLASS, KUEUE_QUEUE, "kueue.x-k8s.io/priority-class", "kai.scheduler/queue"),
    "annotations": (names.QUEUE_ALIAS, "scheduling.volcano.sh/queue-name", foreign_queues.YUNIKORN),
}
WORLDS = {
    "without a default": World().queue("team-a"),
    "with a default": World().queue("team-a", default=True, aliases=["lq"]),
    "with two": World().queue("team-a", default=True).queue("team-b", default=True),
    "of no queue": World(),
}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
@pytest.mark.parametrize("resource", [JOBS, DEPLOYMENTS])
def test_a_workload_that_is_not_sent_since_it_names_nothing_is_allowed(world: World, resource: tuple[str, str]) -> None:
    plain = a_job(labels={"app": "x"}, annotations={"note": "x"})
    view = MemoryView(world.build())

    assert not holds(match_conditions.MAY_BE_REFUSED, plain, resource=resource)
    for old in (None, a_job()):
        operation = "CREATE" if old is None else "UPDATE"
        group, plural = resource
        review = replace(creation(plain), group=group, resource=plural, operation=operation, old=old)
        assert reviewer.validate(review, view, rules=RULES, caches=ReviewCaches()) == ALLOWED


@pytest.mark.parametrize("place", ["workload", "template", "before"])
@pytest.mark.parametrize(("field", "key"), [(field, key) for field, keys in READ.items() for key in keys])
def test_a_workload_with_a_key_that_is_read_is_sent(field: str, key: str, place: str) -> None:
    named = a_job(**{field: {key: "x"}}) if place != "workload" else a_job()
    if place == "workload":
        named["metadata"][field] = {key: "x"}

    new, old = (a_job(), named) if place == "before" else (named, None)
    assert holds(match_conditions.MAY_BE_REFUSED, new, old, resource=JOBS)


def test_a_workload_with_more_templates_than_one_is_always_sent() -> None:
    for resource in (CRONJOBS, ("jobset.x-k8s.io", "jobsets")):
        assert holds(match_conditions.MAY_BE_REFUSED, a_workload(), resource=resource)


def _suspended(value: bool, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "train", **metadata}, "spec": {"suspend": value}}


HELD_ELSEWHERE: dict[str, tuple[tuple[str, str], dict[str, Any], dict[str, Any] | None, bool]] = {
    "a new Job": (JOBS, _suspended(True), None, True),
    "a Job that is resumed": (JOBS, _suspended(False), _suspended(True), True),
    "a Job that stays as it is": (JOBS, _suspended(True), _suspended(True), False),
    "a Job of another controller": (JOBS, _suspended(True, ownerReferences=[{**JOB, "kind": "JobSet"}]), None, False),
    "a kind that is not held": (DEPLOYMENTS, _suspended(True), None, False),
}


@pytest.mark.parametrize(("resource", "new", "old", "held_too"), HELD_ELSEWHERE.values(), ids=HELD_ELSEWHERE)
def test_what_is_sent_as_held_is_not_sent_once_more(
    resource: tuple[str, str], new: dict[str, Any], old: dict[str, Any] | None, held_too: bool
) -> None:
    as_held = resource == JOBS and all(
        holds(text, new, old) for text in (match_conditions.RESUMED, match_conditions.FREE)
    )

    assert as_held is held_too
    assert holds(match_conditions.NOT_HELD, new, old, resource=resource) is not held_too


def _marked(job: dict[str, Any]) -> dict[str, Any]:
    job["metadata"]["annotations"] = {names.HELD: Held.WAITING.value}
    return job


def _named(job: dict[str, Any], key: str, queue: str) -> dict[str, Any]:
    job["metadata"]["labels"] = {key: queue}
    return job


HOLDING: dict[str, tuple[World, set[str]]] = {
    "by default": (
        World().queue("team-a", default=True, holdAt="Workload").queue("team-b", aliases=["lq"], holdAt="Pod"),
        {
            "nothing",
            "nothing of a queue",
            "the queue of the pods",
            "the mark",
            "its queue twice",
            "the queue of its own",
        },
    ),
    "by its label": (
        World().queue("team-a", holdAt="Workload", aliases=["lq"]).queue("team-b", default=True, holdAt="Pod"),
        {"the queue of the pods", "the mark", "its queue twice", "the queue of its own"},
    ),
    "some, by default": (World().queue("team-a", default=True), {"the mark"}),
    "elsewhere alone": (
        World().queue("team-a", team="b", holdAt="Workload").queue("team-b", default=True, holdAt="Pod"),
        set(),
    ),
}
FORGED = {names.HELD: Held.WAITING.value}
AUTHORED: dict[str, tuple[dict[str, Any], bool]] = {
    "nothing": (a_job(), False),
    "nothing of a queue": (a_job(labels={"app": "x"}, annotations={"note": "x"}), False),
    "the queue of the pods": (a_job(labels={names.QUEUE: "team-a"}), False),
    "another queue of the pods": (a_job(labels={names.QUEUE: "team-b"}), False),
    "a queue that is not there": (a_job(labels={names.QUEUE: "none"}), False),
    "a queue by another name": (a_job(labels={KUEUE_QUEUE: "lq"}), False),
    "the mark": (_marked(a_job(labels={names.QUEUE: "team-a"})), True),
    "the mark, and a queue that is not there": (_marked(a_job(labels={names.QUEUE: "none"})), True),
    "the mark, and another queue": (_marked(a_job(labels={names.QUEUE: "team-b"})), True),
    "a class of priority": (a_job(labels={names.QUEUE: "team-a", names.PRIORITY_CLASS: "none"}), False),
    "that it is suspended": (a_job(), True),
    "its queue twice": (_named(a_job(labels={names.QUEUE: "team-a"}), names.QUEUE, "team-a"), False),
    "two queues": (_named(a_job(labels={names.QUEUE: "team-a"}), names.QUEUE, "team-b"), True),
    "the queue of its own": (_named(a_job(), names.QUEUE, "team-a"), False),
    "a queue of its own": (_named(a_job(), names.QUEUE, "none"), False),
    "a queue of its own by another name": (_named(a_job(), KUEUE_QUEUE, "lq"), False),
}


@pytest.mark.parametrize(("world", "plain"), HOLDING.values(), ids=HOLDING)
def test_a_job_that_is_as_the_mutating_half_holds_it_is_not_judged_since_it_is_allowed(
    world: World, plain: set[str]
) -> None:
    """Whoever forges the mark of a queue that holds none loses it."""
    view, caches = MemoryView(world.build()), ReviewCaches()
    unsent = set()
    for name, (authored, suspended) in AUTHORED.items():
        job = authored | {"spec": authored["spec"] | ({"suspend": True} if suspended else {})}
        review = replace(creation(job), group="batch", resource="jobs")
        stored = patching.applied(job, reviewer.hold(review, view, caches=caches).patch)
        if not holds(match_conditions.NOT_AS_HELD, stored, resource=JOBS):
            unsent.add(name)
            assert stored["spec"]["suspend"]
            assert reviewer.validate(replace(review, obj=stored), view, rules=RULES, caches=caches) == ALLOWED

    assert unsent == plain


def test_a_held_job_is_judged_where_it_may_be_refused_and_when_it_is_resumed() -> None:
    held_job = _marked(a_job(labels={names.QUEUE: "team-a"}))
    held_job["spec"]["suspend"] = True

    assert not holds(match_conditions.NOT_AS_HELD, held_job, resource=JOBS)
    assert holds(match_conditions.NOT_AS_HELD, held_job, held_job, resource=JOBS), "an update"
    assert holds(match_conditions.NOT_AS_HELD, held_job, resource=("jobset.x-k8s.io", "jobsets")), "many templates"
    for changed in (
        {"metadata": {"name": "train"}},
        {"spec": held_job["spec"] | {"suspend": False}},
        {"metadata": {"annotations": FORGED, "labels": {names.QUEUE: "team-b"}}},
    ):
        assert holds(match_conditions.NOT_AS_HELD, held_job | changed, resource=JOBS), changed
    for field, keys in READ.items():
        for key in set(keys) - {names.QUEUE}:
            template = {"metadata": {field: {key: "x"}}}
            named = held_job | {"spec": {"suspend": True, "template": template}}
            assert holds(match_conditions.NOT_AS_HELD, named, resource=JOBS), key


def test_a_workload_that_a_controller_makes_is_sent_only_if_it_names_a_queue_itself() -> None:
    assert holds(match_conditions.UNOWNED, a_workload())
    assert not holds(match_conditions.UNOWNED, {"metadata": {"ownerReferences": [JOB]}})
    assert holds(match_conditions.UNOWNED, {"metadata": {"ownerReferences": [{**JOB, "controller": False}]}})


TAKES = {
    "a claim": (a_pod(claims=("c",)), True),
    "an extended resource": (a_pod(containers=[requesting("example.com/gpu")]), True),
    "an extended resource of an init container": (
        a_pod(initContainers=[requesting("deviceclass.resource.kubernetes.io/gpu")]),
        True,
    ),
    "cores and huge pages": (a_pod(containers=[requesting("cpu", "hugepages-2Mi")]), False),
    "nothing": (a_pod(), False),
}


@pytest.mark.parametrize(("pod", "takes"), TAKES.values(), ids=TAKES)
def test_pods_that_may_take_devices_are_those_with_claims_or_extended_resources(
    pod: dict[str, Any], takes: bool
) -> None:
    assert holds(match_conditions.MAY_TAKE_DEVICES, pod) is takes


@pytest.mark.parametrize("user", ["system:serviceaccount:muster-system:muster", 'a "quoted" one', "Zoë"])
def test_the_user_of_a_condition_is_read_back(user: str) -> None:
    assert match_conditions.user_of(match_conditions.not_by(user)) == user


@pytest.mark.parametrize("text", ["", match_conditions.MATTERS, match_conditions.not_by("x") + " || true"])
def test_other_conditions_name_no_user(text: str) -> None:
    assert match_conditions.user_of(text) == ""


NEW_JOBS: dict[str, tuple[dict[str, Any], bool]] = {
    "names its queue": (_named(a_job(), names.QUEUE, "team-a"), False),
    "names it by another name": (_named(a_job(), KUEUE_QUEUE, "lq"), False),
    "names none": (a_job(), True),
    "names it in its template alone": (a_job(labels={names.QUEUE: "team-a"}), True),
    "has the mark already, which others may have written": (
        _named(a_job(labels={names.QUEUE: "team-a"}, annotations={names.COMPLETE: "true"}), names.QUEUE, "team-a"),
        True,
    ),
}


@pytest.mark.parametrize(("job", "shown"), NEW_JOBS.values(), ids=NEW_JOBS)
def test_a_new_job_is_shown_for_its_maker_unless_it_is_shown_for_its_queue(job: dict[str, Any], shown: bool) -> None:
    _, for_maker = webhook_rules.NOT_NAMED
    for_queue = [condition for _, condition in (webhook_rules.NAMED, webhook_rules.NOT_MARKED)]

    assert holds(for_maker, job, resource=JOBS) is shown
    assert all(holds(condition, job, resource=JOBS) for condition in for_queue) is not shown
