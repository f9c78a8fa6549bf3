"""What of a pod is charged to the work of its review."""

from typing import Any

import pytest

from admission.api.values.work_budget import WorkBudget
from admission.errors import TooMuchWorkError
from admission.podpolicy import admission, pod_view, workload_queue
from admission.workloads import template_labels
from tests.unit.webhook.cases import World, exactly, held

GPUS = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}

TOO_MUCH: dict[str, tuple[dict[str, Any], str]] = {
    "containers": ({"containers": [{}] * 10_000}, "10,000 containers"),
    "containers of both kinds": ({"containers": [{}] * 2_000, "initContainers": [{}] * 2_000}, "4,000 containers"),
    "claims": ({"resourceClaims": [{"name": "c"}] * 10_000}, "10,000 claims of a pod"),
    "labels": ({"labels": {f"k{at}": "" for at in range(60_000)}}, "fields and elements"),
    "amounts": (
        {"containers": [{"name": "c", "resources": {"limits": {f"a/r{at}": 1 for at in range(10_000)}}}]},
        "10,000 amounts of resources",
    ),
    "digits": (
        {"containers": [{"name": "c", "resources": {"limits": {"a/b": "9" * 4_000}}}] * 1_000},
        "amounts of resources",
    ),
}


@pytest.mark.parametrize(("fields", "message"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_a_pod_of_very_many_parts_is_too_much_work(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TooMuchWorkError, match=message):
        pod_view.decode(held(**fields), "ml", WorkBudget())


ORDINARY: dict[str, dict[str, Any]] = {
    "a usual one": {"containers": [GPUS]},
    "one of fifty containers": {"containers": [GPUS] * 50, "annotations": {f"k{at}": "x" * 10_000 for at in range(60)}},
}


@pytest.mark.parametrize("fields", ORDINARY.values(), ids=ORDINARY)
def test_an_ordinary_pod_takes_a_twentieth_of_the_work(fields: dict[str, Any]) -> None:
    work = WorkBudget()

    pod_view.decode(held(**fields), "ml", work)

    assert work.spent <= work.left / 19


def test_what_many_claims_of_a_pod_ask_for_is_charged() -> None:
    requests = [exactly(f"r{at}", "gpu.example.com") for at in range(32)]
    snapshot = World().queue("team-a").template("t", *requests).build()

    few, many = (pod_view.decode(held(templates=("t",) * count), "ml") for count in (8, 200))
    work = WorkBudget()
    admission.charge_claims(few, snapshot, work)
    assert work.spent == 0
    with pytest.raises(TooMuchWorkError, match="requests of the claims of a pod"):
        admission.charge_claims(many, snapshot, work)


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_what_the_template_of_a_workload_is_labelled_with_is_charged(field: str) -> None:
    template = {"metadata": {field: {f"k{at}": "" for at in range(60_000)}}, "spec": {}}

    with pytest.raises(TooMuchWorkError, match="fields and elements"):
        workload_queue.decode(
            template_labels.BY_RESOURCE["batch", "jobs"],
            {"metadata": {"name": "j"}, "spec": {"template": template}},
            "ml",
            WorkBudget(),
        )
