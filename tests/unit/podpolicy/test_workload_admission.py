"""Reviews of workloads of a queue that holds them as a whole: what is added, and what is refused."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes import jobs
from admission.api.kubernetes.owners import UNSERVED
from admission.api.muster import gangs
from admission.api.muster.gangs import Gang
from admission.api.snapshot import Snapshot
from admission.api.values import names, work_budget
from admission.api.values.names import Held
from admission.api.values.reasons import Denial, DenyReason
from admission.api.values.work_budget import WorkBudget
from admission.errors import TooMuchWorkError
from admission.podpolicy import workload_admission
from admission.podpolicy.workload_admission import WorkloadView
from admission.review.caches import ReviewCaches
from admission.workloads import suspendable
from tests.unit.webhook import patching
from tests.unit.webhook.cases import CONTROLLER, RULES, World, a_job

HELD = {names.HELD: Held.WAITING.value}
STARTED = {names.HELD: Held.STARTED.value}


def cluster_state(hold_at: str = "Workload") -> Snapshot:
    return World().queue("team-a", default=True, holdAt=hold_at).build()


def job(*, suspend: bool | None = None, annotations: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    made = a_job(**metadata)
    made["spec"]["suspend"] = suspend
    if suspend is None:
        del made["spec"]["suspend"]
    if annotations is not None:
        made["metadata"]["annotations"] = dict(annotations)
    return made


def a_training_job(**run_policy: Any) -> dict[str, Any]:
    template: dict[str, Any] = {"spec": {"containers": []}}
    specs = {"Master": {"template": template}, "Worker": {"replicas": 3, "template": copy.deepcopy(template)}}
    spec: dict[str, Any] = {"pytorchReplicaSpecs": specs}
    if run_policy:
        spec["runPolicy"] = run_policy
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "t"}, "spec": spec}


def a_jobset() -> dict[str, Any]:
    template = {"metadata": {"annotations": {"a": "b"}}, "spec": {"containers": []}}
    entry = {"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 2, "template": template}}}
    spec = {"replicatedJobs": [entry]}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "s"}, "spec": spec}


def a_ray_job(**spec: Any) -> dict[str, Any]:
    template: dict[str, Any] = {"spec": {"containers": []}}
    cluster = {
        "headGroupSpec": {"template": copy.deepcopy(template)},
        "workerGroupSpecs": [{"groupName": "w", "replicas": 2, "template": template}],
    }
    spec = {"shutdownAfterJobFinishes": True, "rayClusterSpec": cluster, **spec}
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "r"}, "spec": spec}


def arrival(obj: dict[str, Any]) -> WorkloadView:
    group = obj["apiVersion"].partition("/")[0]
    kind = suspendable.BY_RESOURCE[group, f"{obj['kind'].lower()}s"]
    return workload_admission.decode(kind, obj, "ml")


def held(obj: dict[str, Any], snapshot: Snapshot | None = None, before: dict[str, Any] | None = None) -> Any:
    """Return what the webhook makes of a workload, and see that it then lets it in and changes nothing more."""
    snapshot = snapshot or cluster_state()
    caches = ReviewCaches()
    defaults, lines = caches.defaults(snapshot), caches.lines(snapshot)
    old = arrival(before) if before is not None else None
    patch = workload_admission.additions(arrival(obj), snapshot, defaults, username="alice", lines=lines, before=old)
    found = patching.applied(obj, patch)
    assert (
        workload_admission.judge(arrival(found), snapshot, defaults, rules=RULES, username="alice", before=old) is None
    )
    assert not workload_admission.additions(
        arrival(found), snapshot, defaults, username="alice", lines=lines, before=old
    )
    return found


def refusal(
    old: dict[str, Any], new: dict[str, Any], *, username: str = "alice", snapshot: Snapshot | None = None
) -> DenyReason | None:
    found = denied(old, new, username=username, snapshot=snapshot)
    return found.reason if found is not None else None


def denied(
    old: dict[str, Any], new: dict[str, Any], *, username: str, snapshot: Snapshot | None = None
) -> Denial | None:
    snapshot = snapshot or cluster_state()
    return workload_admission.judge(
        arrival(new), snapshot, ReviewCaches().defaults(snapshot), rules=RULES, username=username, before=arrival(old)
    )


COMING: dict[str, tuple[dict[str, Any], bool | None, str | None]] = {
    "a Job is suspended and marked": (job(), True, "waiting"),
    "one that says it is not suspended, too": (job(suspend=False), True, "waiting"),
    "one that its author has suspended stays his": (job(suspend=True), True, None),
    "a mark that its author has written is taken away": (job(suspend=True, annotations=STARTED), True, None),
    "the same of one that runs": (job(annotations=STARTED), True, "waiting"),
    "whoever has it held himself has his wish": (job(suspend=True, annotations=HELD), True, "waiting"),
}


@pytest.mark.parametrize(("obj", "suspended", "mark"), COMING.values(), ids=COMING)
def test_a_new_job_of_a_queue_that_holds_workloads_has_the_expected_hold(
    obj: dict[str, Any], suspended: bool | None, mark: str | None
) -> None:
    found = held(obj)

    assert found["spec"].get("suspend") is suspended
    assert found["metadata"].get("annotations", {}).get(names.HELD) == mark
    assert found["spec"]["template"]["metadata"]["labels"][names.QUEUE] == "team-a"


def a_gang(reason: str, *, queue: str = "team-a", phase: str = "Pending") -> Gang:
    hold = {"reason": reason, "message": "m", "since": "2026-11-27T12:00:00Z"}
    metadata = {"name": "g", "namespace": "ml", "uid": "u"}
    return gangs.decode(
        {"metadata": metadata, "spec": {"queue": queue, "size": 1}, "status": {"phase": phase, "hold": hold}}
    )


WAITING: dict[str, tuple[dict[str, Any], Gang | None, bool]] = {
    "nobody waits": ({}, None, False),
    "one waits for quota": ({}, a_gang("QuotaExceeded"), True),
    "one waits for its turn": ({}, a_gang("BehindInOrder"), True),
    "one waits in another queue": ({}, a_gang("QuotaExceeded", queue="team-b"), False),
    "one lacks pods of its own": ({}, a_gang("GangIncomplete"), False),
    "one is let in meanwhile": ({}, a_gang("QuotaExceeded", phase="Admitted"), False),
    "the queue is stopped": ({"stopPolicy": "Hold"}, None, True),
}


@pytest.mark.parametrize(("spec", "gang", "is_held"), WAITING.values(), ids=WAITING)
def test_a_queue_of_hold_at_auto_holds_as_a_whole_what_would_wait(
    spec: dict[str, Any], gang: Gang | None, *, is_held: bool
) -> None:
    queued = World().queue("team-a", default=True, holdAt="Auto", **spec).build()

    found = held(job(), replace(queued, gangs={"ml/g": gang} if gang is not None else {}))

    assert found["spec"].get("suspend", False) is is_held
    assert found["spec"]["template"]["metadata"]["labels"][names.QUEUE] == "team-a"


def test_a_workload_is_held_by_the_queue_of_its_label_and_not_by_the_default() -> None:
    holding = World().queue("fallback", default=True).queue("team-a", holdAt="Workload", aliases=["lq"]).build()
    plain = World().queue("fallback", default=True, holdAt="Workload").queue("team-a", holdAt="Pod").build()

    def labelled(key: str, name: str) -> dict[str, Any]:
        made = job()
        made["metadata"]["labels"] = {key: name}
        return made

    for obj in (labelled(names.QUEUE, "team-a"), labelled("kueue.x-k8s.io/queue-name", "lq")):
        found = held(obj, holding)
        assert found["spec"]["suspend"] is True
        assert found["spec"]["template"]["metadata"]["labels"] == {names.QUEUE: "team-a"}
    assert "suspend" not in held(labelled(names.QUEUE, "team-a"), plain)["spec"]


def waiting(*holds: str, queue: str = "team-a", phase: str = "Pending") -> dict[str, Gang]:
    status = [{"reason": reason, "message": "", "since": "2026-11-27T10:00:00Z"} for reason in holds]
    objects = {
        f"ml/g-{number}": {
            "metadata": {"name": f"g-{number}", "namespace": "ml"},
            "spec": {"queue": queue, "size": 1},
            "status": {"phase": phase, "hold": hold},
        }
        for number, hold in enumerate(status)
    }
    return {name: gangs.decode(obj) for name, obj in objects.items()}


LINES: dict[str, tuple[dict[str, Any], dict[str, Gang], bool]] = {
    "nothing waits": ({}, {}, False),
    "a gang waits for quota": ({}, waiting("GangIncomplete", "QuotaExceeded"), True),
    "a gang waits for devices": ({}, waiting("DevicesBusy"), True),
    "gangs wait for what their controllers make": ({}, waiting("GangIncomplete", "WaitingForClaims"), False),
    "a gang of another queue waits": ({}, waiting("QuotaExceeded", queue="team-b"), False),
    "a gang that waited has started": ({}, waiting("QuotaExceeded", phase="Admitted"), False),
    "the queue is stopped": ({"stopPolicy": "Hold"}, {}, True),
}


@pytest.mark.parametrize(("spec", "records", "held_whole"), LINES.values(), ids=LINES)
def test_a_queue_that_says_nothing_holds_as_a_whole_what_would_wait(
    spec: dict[str, Any], records: dict[str, Gang], held_whole: bool
) -> None:
    """In either case the queue is fixed, so that the pods of a Job need not be shown to the webhook."""
    snapshot = replace(World().queue("team-a", default=True, **spec).build(), gangs=records)
    for obj in (job(), job(annotations=STARTED)):
        found = held(obj, snapshot)

        assert found["spec"].get("suspend") is (True if held_whole else None)
        assert found["metadata"].get("annotations", {}).get(names.HELD) == ("waiting" if held_whole else None)
        assert found["spec"]["template"]["metadata"]["labels"] == {names.QUEUE: "team-a"}
    resumed = held(job(suspend=False), snapshot, before=job(suspend=True))
    assert resumed["spec"]["suspend"] is held_whole


def test_a_job_is_let_in_unsuspended_where_gangs_came_to_wait_after_the_mutating_half_was_asked() -> None:
    snapshot = replace(World().queue("team-a", default=True).build(), gangs=waiting("QuotaExceeded"))

    assert (
        workload_admission.judge(
            arrival(job()), snapshot, ReviewCaches().defaults(snapshot), rules=RULES, username="alice"
        )
        is None
    )


def test_a_jobset_is_held_by_the_queue_of_its_first_job() -> None:
    jobset = a_jobset()
    jobset["spec"]["replicatedJobs"][0]["template"]["metadata"] = {"labels": {names.QUEUE: "team-a"}}
    snapshot = World().queue("fallback", default=True).queue("team-a", holdAt="Workload").build()

    found = held(jobset, snapshot)

    assert found["spec"]["suspend"] is True
    template = found["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert template["metadata"]["labels"] == {names.QUEUE: "team-a"}


def test_a_job_without_template_metadata_is_labelled_all_the_same() -> None:
    found = held(job(metadata=None))

    assert found["spec"]["template"]["metadata"]["labels"] == {names.QUEUE: "team-a"}


def test_a_training_job_is_suspended_where_its_kind_says_so_and_names_its_maker() -> None:
    for obj in (a_training_job(), a_training_job(cleanPodPolicy="None")):
        found = held(obj)

        assert found["spec"]["runPolicy"]["suspend"] is True
        assert found["metadata"]["annotations"] == {names.HELD: "waiting", names.USER: "alice"}
        for replicas in found["spec"]["pytorchReplicaSpecs"].values():
            assert replicas["template"]["metadata"]["labels"] == {names.QUEUE: "team-a"}


def test_a_jobset_is_suspended_and_every_template_of_it_labelled() -> None:
    found = held(a_jobset())

    assert found["spec"]["suspend"] is True
    template = found["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert template["metadata"] == {"annotations": {"a": "b"}, "labels": {names.QUEUE: "team-a"}}


def test_a_ray_job_is_suspended_and_the_templates_of_its_cluster_are_labelled() -> None:
    found = held(a_ray_job())

    assert found["spec"]["suspend"] is True
    assert found["metadata"]["annotations"] == {names.HELD: "waiting", names.USER: "alice"}
    cluster = found["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert group["template"] == {"spec": {"containers": []}, "metadata": {"labels": {names.QUEUE: "team-a"}}}


UNBORNE: dict[str, dict[str, Any]] = {
    "one that keeps its cluster": {"shutdownAfterJobFinishes": False},
    "one that runs on a cluster of others": {"clusterSelector": {"ray.io/cluster": "shared"}},
    "one that waits for its user": {"submissionMode": "InteractiveMode"},
}


@pytest.mark.parametrize("spec", UNBORNE.values(), ids=UNBORNE)
def test_the_webhook_leaves_a_ray_job_unsuspended_that_its_operator_would_give_up(spec: dict[str, Any]) -> None:
    assert held(a_ray_job(**spec)) == a_ray_job(**spec)
    resumed = a_ray_job(suspend=False, **spec)
    assert held(resumed, before=a_ray_job(suspend=True, **spec)) == resumed


def test_a_job_of_no_queue_or_of_a_queue_that_holds_pods_is_left_unchanged() -> None:
    for snapshot in (cluster_state("Pod"), World().queue("team-a", holdAt="Workload").build()):
        assert held(job(), snapshot) == job()


def test_a_workload_of_a_kind_that_muster_may_not_read_is_left_to_the_gates_of_its_pods() -> None:
    """Nobody would resume it, and nothing would say why."""
    forbidden = {"PyTorchJob.kubeflow.org": "list pytorchjobs: forbidden (403)"}
    blind = replace(cluster_state(), unwatched=forbidden)
    assert held(a_training_job(), blind) == a_training_job()
    assert held(a_training_job(suspend=False), blind, before=a_training_job(suspend=True)) == a_training_job(
        suspend=False
    )
    assert held(job(), blind)["spec"]["suspend"] is True

    # One that waits from before is its author's to resume: nobody else would.
    waiting = a_training_job(suspend=True)
    waiting["metadata"]["annotations"] = HELD
    resumed = a_training_job(suspend=False)
    resumed["metadata"]["annotations"] = HELD
    assert refusal(waiting, resumed) is not None
    assert refusal(waiting, resumed, snapshot=blind) is None

    unseen_yet = replace(cluster_state(), unwatched={"PyTorchJob.kubeflow.org": UNSERVED})
    assert held(a_training_job(), unseen_yet)["spec"]["runPolicy"]["suspend"] is True


def test_a_job_of_another_controller_is_not_suspended_but_that_of_a_cron_job_is() -> None:
    for kind, suspended in (("JobSet", None), ("MPIJob", None), ("CronJob", True), ("RayCronJob", True)):
        obj = job()
        obj["metadata"]["ownerReferences"] = [
            {"apiVersion": "x/v1", "kind": kind, "name": "o", "uid": "o", "controller": True}
        ]

        assert held(obj)["spec"].get("suspend") is suspended


def test_a_job_resumed_by_its_user_is_held_again() -> None:
    for mark in ({}, STARTED):
        found = held(job(suspend=False, annotations=mark), before=job(suspend=True, annotations=mark))

        assert found["spec"]["suspend"] is True
        assert found["metadata"]["annotations"][names.HELD] == "waiting"


def test_a_running_job_suspended_by_its_user_stays_suspended() -> None:
    new = job(suspend=True, annotations=STARTED)

    assert held(new, before=job(suspend=False, annotations=STARTED)) == new


CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "to resume it": (job(suspend=True, annotations=HELD), job(suspend=False, annotations=HELD)),
    "to resume it with the mark of one that was started": (
        job(suspend=True, annotations=HELD),
        job(suspend=False, annotations=STARTED),
    ),
    "to take the mark away": (job(suspend=True, annotations=HELD), job(suspend=True)),
    "to mark it as started": (job(suspend=True, annotations=HELD), job(suspend=True, annotations=STARTED)),
    "to mark one that runs": (job(suspend=False, annotations=STARTED), job(suspend=False, annotations=HELD)),
}


@pytest.mark.parametrize(("old", "new"), CHANGES.values(), ids=CHANGES)
def test_only_muster_may_change_the_hold_of_a_held_job(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert refusal(old, new) is DenyReason.GATE_TAMPERING
    assert refusal(old, new, username=CONTROLLER) is None


@pytest.mark.parametrize(("username", "named"), [("alice", "alice"), ("", "an unknown user")])
@pytest.mark.parametrize("change", ["to resume it", "to take the mark away"])
def test_a_refused_change_of_a_hold_says_whose_it_is(change: str, username: str, named: str) -> None:
    found = denied(*CHANGES[change], username=username)

    assert found is not None
    assert f"by {named};" in found.message
    assert found.details["user"] == username


def test_a_held_job_that_another_webhook_has_resumed_is_refused() -> None:
    snapshot = cluster_state()

    denial = workload_admission.judge(
        arrival(job()), snapshot, ReviewCaches().defaults(snapshot), rules=RULES, username="alice"
    )

    assert denial is not None
    assert "spec.suspend is not true" in denial.message


def test_an_unknown_value_of_the_held_annotation_does_not_count_as_held() -> None:
    for mark in ("", "yes", "Waiting"):
        assert suspendable.held(arrival(job(annotations={names.HELD: mark})).meta) is None


def test_a_live_job_is_decoded_with_its_template_only_where_muster_holds_the_job() -> None:
    assert jobs.decode_live(job(annotations=HELD)).template
    assert jobs.decode_live(job(annotations=STARTED)).template
    assert not jobs.decode_live(job()).template


def test_templates_and_their_labels_are_charged() -> None:
    job, kind = a_jobset(), suspendable.BY_RESOURCE["jobset.x-k8s.io", "jobsets"]
    (entry,) = job["spec"]["replicatedJobs"]
    entry["template"]["spec"]["template"]["metadata"] = {"labels": {f"k{at}": "" for at in range(200)}}
    job["spec"]["replicatedJobs"] = [entry] * 500

    with pytest.raises(TooMuchWorkError, match=r"fields and elements .*, 1,000 pod templates"):
        workload_admission.decode(kind, job, "ml", WorkBudget())


@pytest.mark.parametrize("make", [a_training_job, a_jobset, a_ray_job])
def test_an_ordinary_workload_takes_a_hundredth_of_the_work(make: Any) -> None:
    obj, work = make(), WorkBudget()
    group = obj["apiVersion"].partition("/")[0]

    workload_admission.decode(suspendable.BY_RESOURCE[group, f"{obj['kind'].lower()}s"], obj, "ml", work)

    assert 0 < work.spent < work_budget.UNITS / 100
