"""`muster simulate` and `muster lint` say of a workload's queue what the webhook says of the same object."""

import copy
from typing import Any

import pytest

from admission.api.values import names
from admission.simulation import lint
from tests.unit.podpolicy import test_workload_queue as webhook
from tests.unit.podpolicy.test_workload_queue import AGREE, CONFLICTS, EVERY, KUEUE
from tests.unit.simulation.test_offline import Objects, expand, fates, job, node, of, simulate, teams

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
    found = expand(QUEUES, [copy.deepcopy(obj)])
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
    found = expand(QUEUES, [webhook.of_case("Deployment", "nope")])

    assert any(
        note.startswith("Deployment ml/w is refused: UnknownQueue: there is no queue nope") for note in found.notes
    )


def test_the_label_of_a_kind_that_nobody_knows_is_not_passed_over_in_silence() -> None:
    wrapper = webhook.workload("workload.codeflare.dev/v1beta2", "AppWrapper", {}, **{names.QUEUE: "team-a"})

    [note] = [one for one in expand(QUEUES, [wrapper]).notes if one.startswith("AppWrapper ml/w ")]
    assert f"label {names.QUEUE} does not reach its pods" in note


async def test_lint_names_the_field_of_the_workload() -> None:
    wrong = [webhook.of_case("Deployment", "nope"), webhook.a_jobset("team-a", of_pods="other")]
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
