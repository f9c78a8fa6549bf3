"""The queue that a workload names for its pods, as the webhook writes it into templates and refuses it."""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes import jobs
from admission.api.kubernetes.admission_review import Review, Verdict
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.decoding import Reader
from admission.api.values.names import Uid
from admission.api.values.reasons import Denial, DenyReason
from admission.podpolicy import pod_view, queue_selection
from admission.review import reviewer
from admission.review.caches import ReviewCaches
from admission.workloads import suspendable, template_labels
from admission.workloads.kinds import catalog
from admission.workloads.template_labels import LabelledKind
from tests.unit.webhook import patching
from tests.unit.webhook.cases import CONTROLLER, RULES, MemoryView, World, a_pod, creation, update

KUEUE = "kueue.x-k8s.io/queue-name"
POD: dict[str, Any] = {"spec": {"containers": [{"name": "main", "image": "train"}]}}


def cluster(*, default: bool = False) -> Snapshot:
    world = World().queue("team-a", aliases=["user-queue"]).queue("other").queue("team-b", team="b")
    return (world.queue("fallback", default=True) if default else world).build()


def template(queue: str | None = None, key: str = names.QUEUE) -> dict[str, Any]:
    made = copy.deepcopy(POD)
    return made if queue is None else made | {"metadata": {"labels": {key: queue}}}


def workload(api_version: str, kind: str, spec: dict[str, Any], **labels: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "w", "namespace": "ml"}
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def a_job(queue: str | None = None, *, key: str = names.QUEUE, pods: dict[str, Any] | None = None) -> dict[str, Any]:
    labels = {} if queue is None else {key: queue}
    return workload("batch/v1", "Job", {"template": once(template() if pods is None else pods)}, **labels)


def once(pods: dict[str, Any]) -> dict[str, Any]:
    """Return the template of pods that end."""
    return {**pods, "spec": {"restartPolicy": "Never", **pods.get("spec", {})}}


def a_jobset(queue: str | None = None, *, of_job: str | None = None, of_pods: str | None = None) -> dict[str, Any]:
    job: dict[str, Any] = {"spec": {"template": template(of_pods)}}
    if of_job is not None:
        job["metadata"] = {"labels": {names.QUEUE: of_job}}
    plain: dict[str, Any] = {"spec": {"template": template()}}
    entries = [{"name": "driver", "template": plain}, {"name": "workers", "template": job}]
    labels = {} if queue is None else {names.QUEUE: queue}
    return workload("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": entries}, **labels)


CLUSTER = {"headGroupSpec": {"template": template()}, "workerGroupSpecs": [{"template": template()}]}
SPARK = {"driver": {"cores": 1}, "executor": {"labels": {"app": "x"}}}

EVERY: dict[str, tuple[str, dict[str, Any]]] = {
    "Job": ("batch/v1", {"template": once(template())}),
    "CronJob": ("batch/v1", {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": once(template())}}}),
    "Deployment": ("apps/v1", {"template": template()}),
    "ReplicaSet": ("apps/v1", {"template": template()}),
    "DaemonSet": ("apps/v1", {"template": template()}),
    "StatefulSet": ("apps/v1", {"template": template()}),
    "ReplicationController": ("v1", {"template": template()}),
    "JobSet": ("jobset.x-k8s.io/v1alpha2", a_jobset()["spec"]),
    "LeaderWorkerSet": (
        "leaderworkerset.x-k8s.io/v1",
        {"leaderWorkerTemplate": {"leaderTemplate": template(), "workerTemplate": template()}},
    ),
    "PyTorchJob": ("kubeflow.org/v1", {"pytorchReplicaSpecs": {"Master": {"template": template()}}}),
    "TFJob": ("kubeflow.org/v1", {"tfReplicaSpecs": {"Worker": {"template": template()}}}),
    "XGBoostJob": ("kubeflow.org/v1", {"xgbReplicaSpecs": {"Worker": {"template": template()}}}),
    "PaddleJob": ("kubeflow.org/v1", {"paddleReplicaSpecs": {"Worker": {"template": template()}}}),
    "JAXJob": ("kubeflow.org/v1", {"jaxReplicaSpecs": {"Worker": {"template": template()}}}),
    "MPIJob": (
        "kubeflow.org/v2beta1",
        {"mpiReplicaSpecs": {"Launcher": {"template": template()}, "Worker": {"template": template()}}},
    ),
    "RayCluster": ("ray.io/v1", CLUSTER),
    "RayJob": ("ray.io/v1", {"rayClusterSpec": CLUSTER, "submitterPodTemplate": template()}),
    "RayService": ("ray.io/v1", {"rayClusterConfig": CLUSTER}),
    "RayCronJob": ("ray.io/v1", {"jobTemplate": {"rayClusterSpec": CLUSTER}}),
    "SparkApplication": ("sparkoperator.k8s.io/v1beta2", SPARK),
    "ScheduledSparkApplication": ("sparkoperator.k8s.io/v1beta2", {"template": SPARK}),
    "Job of Volcano": ("batch.volcano.sh/v1alpha1", {"tasks": [{"name": "t", "template": template()}]}),
    "Workflow": ("argoproj.io/v1alpha1", {"templates": [{"name": "main"}]}),
    "CronWorkflow": ("argoproj.io/v1alpha1", {"workflowSpec": {"templates": [{"name": "main"}]}}),
}


def of_case(case: str, queue: str) -> dict[str, Any]:
    api_version, spec = EVERY[case]
    return workload(api_version, case.partition(" ")[0], copy.deepcopy(spec), **{names.QUEUE: queue})


def kind_of(obj: dict[str, Any]) -> LabelledKind:
    return template_labels.BY_GROUP[obj["apiVersion"].rpartition("/")[0], obj["kind"]]


def review(obj: dict[str, Any], old: dict[str, Any] | None = None, username: str = "alice") -> Review:
    kind = kind_of(obj)
    named = {"group": kind.group, "resource": kind.plural, "kind": kind.kind, "username": username}
    return creation(obj, **named) if old is None else update(old, obj, **named)


def hold(obj: dict[str, Any], old: dict[str, Any] | None = None, snapshot: Snapshot | None = None) -> dict[str, Any]:
    """Return what the mutating webhook makes of a workload, and see that a second call changes nothing."""
    view, caches = MemoryView(snapshot or cluster()), ReviewCaches()
    found: dict[str, Any] = patching.applied(obj, reviewer.hold(review(obj, old), view, caches=caches).patch)
    assert not reviewer.hold(review(found, old), view, caches=caches).patch
    return found


def judge(
    obj: dict[str, Any], old: dict[str, Any] | None = None, *, username: str = "alice", snapshot: Snapshot | None = None
) -> Denial | None:
    """Return what the validating webhook says of a workload as it would be stored."""
    verdict: Verdict = reviewer.validate(
        review(obj, old, username), MemoryView(snapshot or cluster()), rules=RULES, caches=ReviewCaches()
    )
    return verdict.denial


def refusal(obj: dict[str, Any], old: dict[str, Any] | None = None, snapshot: Snapshot | None = None) -> Denial:
    denial = judge(hold(obj, old, snapshot), old, snapshot=snapshot)
    assert denial is not None
    return denial


def queues_in(obj: dict[str, Any]) -> list[str]:
    """Return the queues of all places of pods' labels, "" for none."""
    places, _ = template_labels.places(kind_of(obj), Reader(obj))
    return [place.labels.get(names.QUEUE, "") for place in places if place.path.is_written]


@pytest.mark.parametrize("case", EVERY)
def test_the_queue_of_a_workloads_label_is_written_into_every_template(case: str) -> None:
    found = hold(of_case(case, "team-a"))

    assert set(queues_in(found)) == {"team-a"}
    assert judge(found) is None


@pytest.mark.parametrize("case", EVERY)
def test_a_queue_that_is_not_there_is_refused_where_it_is_named(case: str) -> None:
    denial = refusal(of_case(case, "team-aa"))

    assert denial.reason is DenyReason.UNKNOWN_QUEUE
    assert denial.message.startswith("there is no queue team-aa; nearest by name: team-a")


def test_who_runs_muster_as_themselves_is_refused_an_unknown_queue_as_everybody_is() -> None:
    """As `muster serve` does outside the cluster: its user, whose updates are Muster's, makes Jobs as well."""
    denial = judge(a_job("nowhere"), username=CONTROLLER)

    assert denial is not None
    assert denial.reason is DenyReason.UNKNOWN_QUEUE


def test_every_kind_that_makes_pods_is_known() -> None:
    made = {(kind.group, kind.kind) for kind in catalog.ALL if not kind.named}

    assert made | {(one.group, one.kind) for one in suspendable.ALL} <= template_labels.BY_GROUP.keys()
    assert {(one.group, one.kind) for one in template_labels.ALL if one.paths} == {
        (EVERY[case][0].rpartition("/")[0], case.partition(" ")[0]) for case in EVERY
    }


def test_a_misspelt_queue_does_not_become_the_default() -> None:
    denial = refusal(a_job("team-aa"), snapshot=cluster(default=True))

    assert denial.reason is DenyReason.UNKNOWN_QUEUE


def test_a_queue_that_is_not_open_to_the_namespace_is_refused_at_the_workload() -> None:
    assert refusal(a_job("team-b")).reason is DenyReason.QUEUE_NOT_OPEN
    assert refusal(a_job(pods=template("team-b"))).reason is DenyReason.QUEUE_NOT_OPEN


def test_a_queue_that_a_template_names_wrongly_is_refused_with_its_field() -> None:
    denial = refusal(a_jobset(of_pods="nope"))

    assert denial.reason is DenyReason.UNKNOWN_QUEUE
    assert denial.message.startswith(
        "spec.replicatedJobs[1].template.spec.template.metadata.labels: there is no queue nope"
    )


CONFLICTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "a Job and its template": (
        a_job("team-a", pods=template("other")),
        "spec.template.metadata.labels names queue other in label muster.dev/queue",
        "metadata.labels names queue team-a in label muster.dev/queue",
    ),
    "a Job with Kueue's label": (
        a_job("user-queue", key=KUEUE, pods=template("other")),
        "spec.template.metadata.labels names queue other in label muster.dev/queue",
        f"metadata.labels names queue team-a in label {KUEUE}",
    ),
    "a JobSet and one of its Jobs": (
        a_jobset("team-a", of_job="other"),
        "spec.replicatedJobs[1].template.metadata.labels names queue other in label muster.dev/queue",
        "metadata.labels names queue team-a in label muster.dev/queue",
    ),
    "a Job of a JobSet and its pods": (
        a_jobset(of_job="team-a", of_pods="other"),
        "spec.replicatedJobs[1].template.spec.template.metadata.labels names queue other in label muster.dev/queue",
        "spec.replicatedJobs[1].template.metadata.labels names queue team-a in label muster.dev/queue",
    ),
}


@pytest.mark.parametrize(("obj", "inner", "outer"), CONFLICTS.values(), ids=CONFLICTS)
def test_two_queues_for_one_pod_are_refused_and_both_named(obj: dict[str, Any], inner: str, outer: str) -> None:
    denial = refusal(obj)

    assert denial.reason is DenyReason.QUEUE_CONFLICT
    assert denial.message.startswith(f"{inner} and {outer}; pods enter one queue")


AGREE: dict[str, tuple[dict[str, Any], list[str]]] = {
    "the same twice": (a_job("team-a", pods=template("team-a")), ["team-a"]),
    "an alias, and the queue itself": (a_job("user-queue", key=KUEUE, pods=template("team-a")), ["team-a"]),
    "an alias alone": (a_job("user-queue", key=KUEUE), ["team-a"]),
    "another system's queue beside one of Muster's": (a_job("theirs", key=KUEUE, pods=template("other")), ["other"]),
    "an alias in the template": (a_job("team-a", pods=template("user-queue", KUEUE)), ["team-a"]),
    "the template alone": (a_job(pods=template("other")), ["other"]),
    "nothing": (a_job(), [""]),
    "a Job of a JobSet": (a_jobset(of_job="other"), ["", "other"]),
    "a JobSet and one of its templates": (a_jobset("team-a", of_pods="team-a"), ["team-a", "team-a"]),
}


@pytest.mark.parametrize(("obj", "queues"), AGREE.values(), ids=AGREE)
def test_names_that_agree_are_let_in(obj: dict[str, Any], queues: list[str]) -> None:
    found = hold(obj)

    assert queues_in(found) == queues
    assert judge(found) is None


def test_another_systems_name_that_leads_nowhere_is_refused_where_nothing_else_is_named() -> None:
    denial = refusal(a_job("theirs", key=KUEUE))

    assert denial.reason is DenyReason.UNKNOWN_QUEUE
    assert f"label {KUEUE} names queue theirs" in denial.message


def test_another_systems_name_says_nothing_where_no_queue_has_aliases() -> None:
    snapshot = World().queue("team-a").build()

    template = hold(a_job("theirs", key=KUEUE), snapshot=snapshot)["spec"]["template"]
    assert template.get("metadata") == {"annotations": {names.USER: "alice"}}
    assert judge(a_job("theirs", key=KUEUE), snapshot=snapshot) is None


def test_a_template_from_which_another_webhook_took_the_queue_is_refused() -> None:
    denial = judge(a_job("team-a"))

    assert denial is not None
    assert denial.reason is DenyReason.GATE_TAMPERING
    assert denial.message.startswith("spec.template.metadata.labels lacks label muster.dev/queue: team-a")


def test_a_queue_of_a_job_inside_is_written_when_the_job_is_made() -> None:
    """The API server sends no such JobSet to the mutating webhook."""
    assert judge(a_jobset(of_job="team-a")) is None


def test_a_kind_whose_pods_the_label_cannot_reach_says_where_to_name_the_queue() -> None:
    obj = workload("trainer.kubeflow.org/v1alpha1", "TrainJob", {}, **{names.QUEUE: "team-a"})
    denial = refusal(obj)

    assert denial.reason is DenyReason.MALFORMED_REQUEST
    assert "label its JobSet by spec.runtimePatches" in denial.message
    assert judge(workload("trainer.kubeflow.org/v1alpha1", "TrainJob", {})) is None


@pytest.mark.parametrize(
    "entries",
    [
        [{"name": "x", "template": {"spec": {"template": template()}}}] * template_labels.MOST_PLACES,
        [*({"name": "x"} for _ in range(2_000)), {"name": "y", "template": {"spec": {"template": template()}}}],
    ],
    ids=["all of them", "the last one"],
)
def test_a_workload_of_too_many_templates_is_refused_a_queue_for_all_of_them(entries: list[Any]) -> None:
    obj = workload("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": entries}, **{names.QUEUE: "team-a"})
    denial = judge(obj)

    assert denial is not None
    assert "there are more than 1000" in denial.message
    unlabelled = workload("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": entries})
    assert judge(unlabelled) is None


LONG = "x" * 3_000_000
HOSTILE: dict[str, tuple[Callable[[], dict[str, Any]], DenyReason]] = {
    "long names": (
        lambda: workload(
            "kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": {LONG: {"template": template(LONG)}}}
        ),
        DenyReason.UNKNOWN_QUEUE,
    ),
    "a million numbers": (
        lambda: workload(
            "jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [1] * 1_000_000}, **{names.QUEUE: "team-a"}
        ),
        DenyReason.MALFORMED_REQUEST,
    ),
    "a hundred thousand roles": (
        lambda: workload(
            "kubeflow.org/v1",
            "PyTorchJob",
            {"pytorchReplicaSpecs": {f"r{number}": {"template": {}} for number in range(100_000)}},
            **{names.QUEUE: "team-a"},
        ),
        DenyReason.MALFORMED_REQUEST,
    ),
}


@pytest.mark.parametrize(("make", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_a_workload_of_any_size_is_answered_within_its_time(
    make: Callable[[], dict[str, Any]], reason: DenyReason
) -> None:
    obj = make()
    view, caches = MemoryView(cluster()), ReviewCaches()

    began = time.process_time()
    reviewer.hold(review(obj), view, caches=caches)
    denial = judge(obj)

    assert time.process_time() - began < 0.25
    assert denial is not None
    assert denial.reason is reason
    assert len(denial.message) < 200_000


def test_what_cannot_be_read_is_refused_with_its_field() -> None:
    denial = judge(a_job("team-a", pods={"metadata": {"labels": ["x"]}}))

    assert denial is not None
    assert denial.reason is DenyReason.MALFORMED_REQUEST
    assert "spec.template.metadata.labels: is a list, an object is expected" in denial.message


# Changes.

ONCE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "another queue": (a_job("team-a", pods=template("team-a")), a_job("other", pods=template("team-a"))),
    "no queue": (a_job("team-a", pods=template("team-a")), a_job(pods=template("team-a"))),
    "a queue where none was": (a_job(), a_job("team-a")),
    "another queue by Kueue's label": (
        a_job("user-queue", key=KUEUE, pods=template("team-a")),
        a_job("theirs", key=KUEUE, pods=template("team-a")),
    ),
    "a JobSet's": (a_jobset("team-a"), a_jobset("other")),
}


@pytest.mark.parametrize(("old", "new"), ONCE.values(), ids=ONCE)
def test_the_queue_of_a_workload_that_runs_once_is_fixed(old: dict[str, Any], new: dict[str, Any]) -> None:
    denial = refusal(new, old)

    assert denial.reason is DenyReason.GATE_TAMPERING
    assert "it is fixed when the workload is created" in denial.message
    assert judge(new, old, username=CONTROLLER) is None


def a_deployment(queue: str | None, pods: str | None) -> dict[str, Any]:
    labels = {} if queue is None else {names.QUEUE: queue}
    return workload("apps/v1", "Deployment", {"template": template(pods)}, **labels)


def test_a_workload_that_rolls_out_new_pods_moves_to_another_queue_as_a_whole() -> None:
    old = a_deployment("team-a", "team-a")

    assert judge(hold(a_deployment("other", "other"), old), old) is None
    assert refusal(a_deployment("other", "team-a"), old).reason is DenyReason.QUEUE_CONFLICT
    assert refusal(a_deployment("nope", "nope"), old).reason is DenyReason.UNKNOWN_QUEUE
    assert judge(hold(a_deployment(None, "team-a"), old), old) is None


def test_a_label_that_a_new_version_of_the_template_lacks_is_written_again() -> None:
    old = a_deployment("team-a", "team-a")
    assert hold(a_deployment("team-a", None), old) == old

    job = a_job("team-a", pods=template("team-a"))
    assert hold(a_job("team-a"), job) == job


def test_workloads_from_before_are_changed_as_ever() -> None:
    """Their templates have no queue, and those of a Job cannot be changed."""
    old = a_job("team-a")
    changed = copy.deepcopy(old)
    changed["metadata"]["finalizers"] = ["x"]

    assert hold(changed, old) == changed
    assert judge(changed, old) is None
    gone = a_deployment("gone", "gone")
    assert judge({**gone, "status": {}}, gone) is None, "its queue was deleted since"


# Pods of Jobs from before.


def of_job(snapshot: Snapshot, pod: dict[str, Any], **labels: str) -> queue_selection.QueueSelection:
    job = jobs.decode({"metadata": {"name": "train", "namespace": "ml", "uid": "j", "labels": labels}, "spec": {}})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "j", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    known = replace(snapshot, jobs={Uid("j"): job})
    return queue_selection.select_queue(pod_view.decode(pod, "ml"), known, ReviewCaches().defaults(known))


def test_a_pod_that_names_none_enters_the_queue_of_its_job() -> None:
    for labels in ({names.QUEUE: "team-a"}, {KUEUE: "user-queue"}):
        found = of_job(cluster(default=True), a_pod(), **labels)
        assert found.queue is not None
        assert found.queue.name == "team-a"


def test_a_pod_with_another_queue_than_its_job_is_refused() -> None:
    denial = of_job(cluster(), a_pod(labels={names.QUEUE: "other"}), **{names.QUEUE: "team-a"}).denial

    assert denial is not None
    assert denial.reason is DenyReason.QUEUE_CONFLICT
    assert "the pod names queue other in label muster.dev/queue and its Job train names queue team-a" in denial.message


def test_a_pod_of_a_job_that_names_an_unknown_queue_is_refused() -> None:
    denial = of_job(cluster(default=True), a_pod(), **{names.QUEUE: "nope"}).denial

    assert denial is not None
    assert denial.reason is DenyReason.UNKNOWN_QUEUE


KUEUE_CLASS = "kueue.x-k8s.io/priority-class"


def with_classes() -> Snapshot:
    return World().queue("team-a", aliases=["user-queue"], priorityClasses=[{"name": "urgent", "value": 9}]).build()


def of_class(obj: dict[str, Any], name: str, key: str = names.PRIORITY_CLASS) -> dict[str, Any]:
    obj["metadata"].setdefault("labels", {})[key] = name
    return obj


def classes_in(obj: dict[str, Any]) -> list[str]:
    places, _ = template_labels.places(kind_of(obj), Reader(obj))
    return [place.labels.get(names.PRIORITY_CLASS, "") for place in places if place.path.is_written]


@pytest.mark.parametrize("case", EVERY)
def test_the_priority_class_of_a_workloads_label_is_written_into_every_template(case: str) -> None:
    found = hold(of_class(of_case(case, "team-a"), "urgent"), snapshot=with_classes())

    assert set(classes_in(found)) == {"urgent"}
    assert set(queues_in(found)) == {"team-a"}


def test_the_class_of_kueues_label_counts_where_the_queue_has_it() -> None:
    moved = hold(of_class(a_job("user-queue", key=KUEUE), "urgent", KUEUE_CLASS), snapshot=with_classes())

    assert classes_in(moved) == ["urgent"]
    assert warnings(moved, with_classes()) == ()


@pytest.mark.parametrize("key", [names.PRIORITY_CLASS, KUEUE_CLASS])
def test_a_class_that_the_queue_does_not_have_is_told_and_not_written(key: str) -> None:
    wrong = hold(of_class(a_job("team-a"), "urgnt", key), snapshot=with_classes())

    assert classes_in(wrong) == [""]
    (told,) = warnings(wrong, with_classes())
    assert told.startswith(f"muster: metadata.labels: {key} names urgnt, which is no priority class of queue team-a;")
    assert told.endswith("it has urgent; it has no effect")


@pytest.mark.parametrize("key", [names.PRIORITY_CLASS, KUEUE_CLASS])
def test_a_class_without_a_queue_is_told_to_have_no_effect_in_the_default_queue(key: str) -> None:
    snapshot = World().queue("fallback", default=True, priorityClasses=[{"name": "urgent", "value": 9}]).build()
    in_template = once({"metadata": {"labels": {key: "urgent"}}, **POD})

    (told,) = warnings(of_class(a_job(), "urgent", key), snapshot)

    assert told == (
        f"muster: metadata.labels: {key} names urgent, which has no effect, as no queue is named and the pods enter the"
        " default queue fallback; name the queue beside it (muster.dev/queue), or the class in the pod template"
    )
    assert warnings(of_class(a_job("fallback"), "urgent", key), snapshot) == ()
    assert warnings(of_class(a_job(pods=in_template), "urgent", key), snapshot) == ()
    assert warnings(of_class(a_job(), "urgent", key), World().queue("team-a").build()) == ()


def test_a_template_keeps_the_class_that_it_or_the_job_inside_names() -> None:
    own = a_job("team-a", pods={"metadata": {"annotations": {names.PRIORITY_CLASS: "low"}}, **POD})
    inside = a_jobset("team-a")
    inside["spec"]["replicatedJobs"][1]["template"]["metadata"] = {"labels": {names.PRIORITY_CLASS: "other"}}

    assert classes_in(hold(of_class(own, "urgent"), snapshot=with_classes())) == [""]
    assert classes_in(hold(of_class(inside, "urgent"), snapshot=with_classes())) == ["urgent", ""]


def test_a_job_from_before_is_given_no_class_and_one_that_loses_it_is_given_it_again() -> None:
    stored = hold(of_class(a_job("team-a"), "urgent"), snapshot=with_classes())
    plain = of_class(a_job("team-a", pods=template("team-a")), "urgent")

    assert classes_in(hold(plain, plain, with_classes())) == [""]
    assert classes_in(hold(plain, stored, with_classes())) == ["urgent"]


def warnings(obj: dict[str, Any], snapshot: Snapshot | None = None) -> Sequence[str]:
    view = MemoryView(snapshot or cluster())
    return reviewer.validate(review(obj), view, rules=RULES, caches=ReviewCaches()).warnings


def test_a_pod_template_that_a_custom_resource_keeps_as_written_is_warned_of_unknown_fields() -> None:
    pods: dict[str, Any] = {"spec": {"containers": [], "resourceClaim": []}}
    training = workload("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"template": pods}}})

    at = "spec.pytorchReplicaSpecs.Worker.template.spec.resourceClaim"
    assert warnings(training) == (f"muster: {at}: is an unknown field; did you mean resourceClaims?",)


def test_what_the_api_server_has_judged_itself_is_not_warned_of() -> None:
    """A newer API server may know more fields of its own kinds than Muster does."""
    assert warnings(a_job(pods={"spec": {"containers": [], "newer": []}})) == ()


def test_a_pod_template_that_is_too_large_to_be_looked_through_is_not() -> None:
    pods = {"spec": {"containers": [{"env": [{"name": str(n), "value": "x"} for n in range(5000)]}], "claims": []}}

    assert warnings(workload("batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"template": pods}]})) == ()
