"""`muster simulate` and `muster lint` say of a workload's queue what the webhook says of the same object."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes import jobs
from admission.api.values import names
from admission.podpolicy import pod_view, queue_selection
from admission.review.caches import ReviewCaches
from admission.simulation import lint
from tests.unit.podpolicy import test_workload_queue as webhook
from tests.unit.podpolicy.test_workload_queue import AGREE, CONFLICTS, EVERY, KUEUE
from tests.unit.simulation.simulated import Objects, expand, fates, job, node, of, simulate, teams
from tests.unit.webhook.cases import a_pod

QUEUES: Objects = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml", "labels": {"team": "a"}}},
    *(
        {
            "apiVersion": "muster.dev/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"namespaceSelector": {"matchLabels": {"team": team}}, "quotas": [], **more},
        }
        for name, team, more in (
            ("team-a", "a", {"aliases": ["user-queue"]}),
            ("other", "a", {}),
            ("team-b", "b", {}),
        )
    ),
]
"""The queues of `webhook.cluster`."""


def selecting(obj: dict[str, Any]) -> dict[str, Any]:
    """Return a workload as the API server takes it: those of apps/v1 select the pods that they make."""
    found = copy.deepcopy(obj)
    if found["apiVersion"] == "apps/v1":
        metadata = found["spec"]["template"].setdefault("metadata", {})
        metadata["labels"] = {**metadata.get("labels", {}), "app": "w"}
        found["spec"]["selector"] = {"matchLabels": {"app": "w"}}
    return found


WORKLOADS: dict[str, dict[str, Any]] = {
    **{f"{case} of a queue": webhook.of_case(case, "team-a") for case in EVERY},
    **{f"{case} of an unknown queue": webhook.of_case(case, "team-aa") for case in EVERY},
    **{case: obj for case, (obj, _, _) in CONFLICTS.items()},
    **{case: obj for case, (obj, _) in AGREE.items()},
    "a Job of another team's queue": webhook.a_job("team-b"),
    "a Job of another system's queue": webhook.a_job("theirs", key=KUEUE),
}


@pytest.mark.parametrize("obj", WORKLOADS.values(), ids=WORKLOADS)
def test_a_workload_is_refused_offline_as_it_is_at_the_webhook(obj: dict[str, Any]) -> None:
    found = expand(QUEUES, [selecting(obj)])
    expected = webhook.judge(webhook.hold(obj))

    refused = found.refused_workloads.get(len(QUEUES))
    assert (refused.denial if refused is not None else None) == expected


@pytest.mark.parametrize("labels", [{names.QUEUE: "team"}, {KUEUE: "lq"}], ids=["Muster's", "Kueue's"])
def test_the_pods_of_a_job_enter_the_queue_of_its_label(labels: dict[str, str]) -> None:
    queues = teams()
    queues[0]["spec"] |= {"default": False, "aliases": ["lq"]}

    gang = of(simulate(queues, node("one", 4), job("train", pods=2, labels=labels)), "train")

    assert (gang.verdict, gang.queue, gang.charges) == ("Admitted", "team", {"gpus": 2})


def test_a_misspelt_queue_of_a_job_is_told_as_its_gangs_denial() -> None:
    outcome = simulate(teams(), node("one", 4), job("train", pods=2, labels={names.QUEUE: "tema"}))

    assert fates(outcome) == {"train": "UnknownQueue"}
    assert of(outcome, "train").queue == "tema"


def test_a_workload_whose_pods_are_not_simulated_is_noted_when_it_is_refused() -> None:
    found = expand(QUEUES, [webhook.of_case("CronJob", "nope")])

    assert any(note.startswith("CronJob ml/w is refused: UnknownQueue: there is no queue nope") for note in found.notes)


def test_the_label_of_a_kind_that_nobody_knows_is_not_passed_over_in_silence() -> None:
    wrapper = webhook.workload("workload.codeflare.dev/v1beta2", "AppWrapper", {}, **{names.QUEUE: "team-a"})

    [note] = [one for one in expand(QUEUES, [wrapper]).notes if one.startswith("AppWrapper ml/w ")]
    assert f"label {names.QUEUE} does not reach its pods" in note


async def test_lint_names_the_field_of_the_workload() -> None:
    wrong = [selecting(webhook.of_case("Deployment", "nope")), webhook.a_jobset("team-a", of_pods="other")]
    remarks = (await lint.lint([*QUEUES, *wrong])).remarks

    told = [(remark.index - len(QUEUES), remark.field, remark.message.partition(":")[0]) for remark in remarks]
    assert told == [
        (0, "metadata.labels", "is refused"),
        (1, "spec.replicatedJobs[1].template.spec.template.metadata.labels", "is refused"),
    ]
    assert [remark.severity for remark in remarks] == ["error", "error"]


def test_an_object_that_exists_already_is_left_as_it_is() -> None:
    stored = webhook.a_job("team-a")
    stored["metadata"]["uid"] = "j-1"
    found = expand(QUEUES, [stored])

    (gang_pod,) = found.snapshot.pods.values()
    assert gang_pod.queue == "team-a", "its pods enter the queue of their Job"
    assert not found.refused_workloads


LABELS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "an alias on the Job": ({KUEUE: "user-queue"}, {}),
    "an alias on the Job, and another system's word on its pods": ({KUEUE: "user-queue"}, {"app": "x"}),
    "an alias on the pods": ({}, {KUEUE: "user-queue"}),
    "an alias on both": ({KUEUE: "user-queue"}, {KUEUE: "user-queue"}),
    "an alias on the Job, and a queue of the pods' own": ({KUEUE: "user-queue"}, {names.QUEUE: "other"}),
    "a queue on the Job beside an alias": ({names.QUEUE: "other", KUEUE: "user-queue"}, {}),
    "a name that is nobody's alias": ({KUEUE: "theirs"}, {}),
    "nothing": ({}, {}),
}


@pytest.mark.parametrize("is_stored", [False, True], ids=["new", "stored before Muster"])
@pytest.mark.parametrize(("of_job", "of_pods"), LABELS.values(), ids=LABELS)
def test_pods_enter_the_queue_offline_that_they_enter_at_the_webhook(
    of_job: dict[str, str], of_pods: dict[str, str], *, is_stored: bool
) -> None:
    made = webhook.workload(
        "batch/v1", "Job", {"template": {**webhook.once(webhook.POD), "metadata": {"labels": of_pods}}}, **of_job
    )
    made["metadata"] |= {"uid": "j-1"} if is_stored else {}
    found = expand(QUEUES, [copy.deepcopy(made)])
    refused = {one.denial.reason for one in found.refusals.values()}
    refused |= {one.denial.reason for one in found.refused_workloads.values()}
    offline: set[str] = {*refused} or {pod.queue for pod in found.snapshot.pods.values()}

    assert offline == {at_webhook(made, is_stored=is_stored)}


def at_webhook(made: dict[str, Any], *, is_stored: bool) -> str:
    """Return the queue that the pods of a Job enter at the webhook, or the reason of its refusal."""
    job = made if is_stored else webhook.hold(made)
    denial = None if is_stored else webhook.judge(job)
    if denial is not None:
        return denial.reason
    stored = jobs.decode({**job, "metadata": {**job["metadata"], "uid": "j-1"}})
    snapshot = replace(webhook.cluster(), jobs={stored.meta.uid: stored})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "w", "uid": "j-1", "controller": True}
    pod = a_pod(labels=job["spec"]["template"].get("metadata", {}).get("labels", {}))
    pod["metadata"]["ownerReferences"] = [owner]
    selection = queue_selection.select_queue(pod_view.decode(pod, "ml"), snapshot, ReviewCaches().defaults(snapshot))
    return selection.denial.reason if selection.denial is not None else selection.queue.name if selection.queue else ""


def test_pods_whose_template_names_a_node_are_refused_as_by_the_webhook() -> None:
    """They were taken for bound, and their Job was in no answer."""
    template, made = job("train")
    made["spec"]["template"]["spec"]["nodeName"] = "a"

    outcome = simulate(teams(), node("a", 1), [template, made])

    assert fates(outcome) == {"train": "PolicyViolation"}
    assert "spec.nodeName is set to a" in of(outcome, "train").message
