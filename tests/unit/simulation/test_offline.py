"""`muster simulate` from manifests to outcome: what surrounds Muster is played, and Muster's own cycle decides."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from admission.api.values import names
from admission.api.values.names import Held
from admission.api.values.reasons import DenyReason, HoldReason
from admission.dra import compatibility
from admission.dra.compatibility import Release
from admission.simulation import offline
from admission.simulation.offline import Verdict
from tests.unit.api import refused
from tests.unit.simulation.simulated import (
    RUNNING,
    Objects,
    expand,
    fates,
    job,
    node,
    nodes_of,
    objects,
    of,
    simulate,
    teams,
    use_of,
)


def test_a_gang_that_fits_is_admitted_with_its_devices_and_its_charge() -> None:
    gang = of(simulate(teams(), node("one", 4), job("train", pods=2, gpus=2)), "train")

    assert (gang.verdict, gang.order, gang.charges) == (Verdict.ADMITTED, 1, {"gpus": 4})
    assert [(pod.pod, pod.node) for pod in gang.plan] == [("default/train-0", "one"), ("default/train-1", "one")]
    assert {str(g.device) for pod in gang.plan for claim in pod.claims for g in claim.devices} == {
        f"gpu.example.com/one/gpu-{number}" for number in range(4)
    }


@pytest.mark.parametrize(("strands_least", "places"), [(True, ["two", "one"]), (False, ["one", "two"])])
def test_a_gang_leaves_devices_of_one_root_to_the_one_behind_it_that_ties_its_own(
    strands_least: bool, places: list[str]
) -> None:
    """Node two has three devices, of which the first is alone on its root."""
    root = "resource.kubernetes.io/pcieRoot"
    nodes = [*node("one", 2), *node("two", 3)]
    for slice_, roots in zip(nodes[1::2], ("xx", "xyy"), strict=True):
        for device, value in zip(slice_["spec"]["devices"], roots, strict=True):
            device["attributes"] = {root: {"string": value}}
    single, pair = job("single"), job("then-a-pair", gpus=2)
    pair[0]["spec"]["spec"]["devices"]["constraints"] = [{"matchAttribute": root}]
    for _, one in (single, pair):
        one["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}

    outcome = asyncio.run(offline.simulate(expand(teams(), nodes, single, pair), strands_least=strands_least))

    assert [*map(nodes_of, (of(outcome, "single"), of(outcome, "then-a-pair")))] == [[place] for place in places]


@pytest.mark.parametrize(("strands_least", "place"), [(True, "two"), (False, "one")])
def test_a_gang_that_could_use_any_model_leaves_those_alone_that_others_name(strands_least: bool, place: str) -> None:
    nodes = [*node("one", 2), *node("two", 2)]
    for slice_, model in zip(nodes[1::2], ("t4", "g2"), strict=True):
        for device in slice_["spec"]["devices"]:
            device["attributes"] = {"model": {"string": model}}
    anything, named = job("anything"), job("then-a-model")
    selector = {"cel": {"expression": "device.attributes['gpu.example.com'].model == 't4'"}}
    named[0]["spec"]["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [selector]
    for _, one in (anything, named):
        one["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}

    outcome = asyncio.run(offline.simulate(expand(teams(), nodes, anything, named), strands_least=strands_least))

    assert [*map(nodes_of, (of(outcome, "anything"), of(outcome, "then-a-model")))] == [[place], ["one"]]


def test_a_simulated_gang_over_quota_is_held_with_the_numbers() -> None:
    gang = of(simulate(teams(quota=4), node("one", 8), job("a", gpus=3), job("b", gpus=2)), "b")

    assert gang.reason == HoldReason.QUOTA_EXCEEDED
    assert {"left": gang.details["left"], "needed": gang.details["needed"]} == {"left": "1", "needed": "2"}


def test_a_gang_within_quota_that_cannot_be_allocated_together_waits_whole() -> None:
    outcome = simulate(teams(), node("one", 4), node("two", 1), job("train", pods=2, gpus=3))

    assert fates(outcome) == {"train": HoldReason.NO_FEASIBLE_PLACEMENT}
    assert use_of(outcome) == 0


def test_devices_that_run_gangs_are_busy_not_missing() -> None:
    outcome = simulate(teams(), node("one", 4), job("first", gpus=3), job("second", gpus=3))

    assert fates(outcome) == {"first": "Admitted", "second": HoldReason.DEVICES_BUSY}
    assert "default/first " in of(outcome, "second").message + " "
    assert use_of(outcome) == 3


def test_until_empty_ends_gangs_in_their_order_and_tries_again() -> None:
    outcome = simulate(teams(), node("one", 4), job("a", gpus=4), job("b", gpus=4), job("c", gpus=9), until_empty=True)

    assert [(gang.name, gang.order) for gang in outcome.gangs if gang.order] == [("a", 1), ("b", 2)]
    assert of(outcome, "c").verdict is not Verdict.ADMITTED


def test_a_gang_above_the_potential_quota_is_denied() -> None:
    outcome = simulate(teams(quota=4), node("one", 8), job("big", gpus=5), job("small"))

    assert fates(outcome) == {"big": DenyReason.NEVER_FITS, "small": "Admitted"}
    assert of(outcome, "big").verdict is Verdict.DENIED


def test_a_pod_that_names_an_unknown_queue_is_denied() -> None:
    lone = objects("""
        apiVersion: v1
        kind: Pod
        metadata: {name: lone, labels: {muster.dev/queue: temas}}
        spec: {containers: [{name: main, image: train}]}
        """)

    assert fates(simulate(teams(), lone)) == {"lone": DenyReason.UNKNOWN_QUEUE}


def test_pods_outside_queues_make_no_gang_in_a_simulation() -> None:
    assert simulate(node("one", 1), job("train")).gangs == ()


def test_running_pods_of_the_input_take_devices_and_quota() -> None:
    outcome = simulate(teams(quota=4), node("one", 4), objects(RUNNING), job("one"), job("two"))

    assert fates(outcome) == {"old": "Admitted", "one": "Admitted", "two": HoldReason.QUOTA_EXCEEDED}
    assert (of(outcome, "old").order, of(outcome, "old").charges) == (None, {"gpus": 3})
    assert use_of(outcome) == 4


def test_running_gangs_of_the_input_end_first() -> None:
    outcome = simulate(teams(), node("one", 4), objects(RUNNING), job("next", gpus=4), until_empty=True)

    assert fates(outcome) == {"old": "Admitted", "next": "Admitted"}
    assert of(outcome, "old").charges == {"gpus": 3}


def test_a_jobs_pods_in_the_input_are_not_made_again() -> None:
    cluster_state = expand(
        teams(),
        job("train", pods=2, uid="u-1"),
        objects("""
            apiVersion: v1
            kind: Pod
            metadata:
              name: train-x7k2p
              uid: u-2
              labels: {muster.dev/queue: team}
              ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: u-1, controller: true}]
            spec: {schedulingGates: [{name: muster.dev/admission}], containers: [{name: main, image: train}]}
            """),
    )

    assert [pod.meta.name for pod in cluster_state.snapshot.pods.values()] == ["train-x7k2p"]


def test_a_gang_of_the_input_that_is_not_complete_waits() -> None:
    lone = objects("""
        apiVersion: v1
        kind: Pod
        metadata:
          name: train-x7k2p
          labels: {muster.dev/queue: team}
          ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: u-1, controller: true}]
        spec: {containers: [{name: main, image: train}]}
        """)
    outcome = simulate(teams(), node("one", 1), job("train", pods=2, uid="u-1"), lone)

    assert [gang.reason for gang in outcome.gangs] == [HoldReason.GANG_INCOMPLETE]


def test_made_up_names_uids_and_times_are_always_the_same() -> None:
    first, second = (expand(teams(), job("train", pods=3)).snapshot for _ in range(2))

    assert first == second
    assert [pod.meta.name for pod in first.pods.values()] == ["train-0", "train-1", "train-2"]
    assert sorted(first.claims) == ["default/train-0-gpu", "default/train-1-gpu", "default/train-2-gpu"]


def test_objects_without_a_time_are_in_the_order_of_the_input_behind_the_others() -> None:
    early = job("early", creationTimestamp="2026-05-01T12:00:00Z")
    cluster_state = expand(teams(), job("z"), job("a"), early)
    created = sorted(cluster_state.snapshot.jobs.values(), key=lambda found: found.meta.created)

    assert cluster_state.now == datetime(2026, 5, 1, 12, 1, tzinfo=UTC)
    assert [found.meta.name for found in created] == ["early", "z", "a"]


def test_indexed_pods_know_their_index_and_their_job() -> None:
    found = job("train", pods=2)
    found[1]["spec"]["completionMode"] = "Indexed"
    pods = list(expand(teams(), found).snapshot.pods.values())

    assert [pod.meta.annotations["batch.kubernetes.io/job-completion-index"] for pod in pods] == ["0", "1"]
    assert {pod.meta.labels["batch.kubernetes.io/job-name"] for pod in pods} == {"train"}


@pytest.mark.parametrize(
    ("spec", "pods"),
    [
        ({"suspend": True}, 0),
        ({"parallelism": 0}, 0),
        ({"parallelism": 3, "completions": 2}, 2),
        ({"parallelism": 2, "completions": None}, 2),
        ({"parallelism": None, "completions": None}, 1),
    ],
)
def test_a_job_makes_as_many_pods_as_its_controller_would(spec: dict[str, Any], pods: int) -> None:
    found = job("train")
    found[1]["spec"] |= spec

    assert len(expand(teams(), found).snapshot.pods) == pods


def test_a_job_that_muster_holds_as_a_whole_is_simulated_with_the_pods_that_it_will_make() -> None:
    for mark, pods in ((Held.WAITING, 2), (Held.STARTED, 0)):
        found = job("train", pods=2)
        found[1]["spec"]["suspend"] = True
        found[1]["metadata"]["annotations"] = {names.HELD: mark}

        assert len(expand(teams(), found).snapshot.pods) == pods


def test_a_priority_class_orders_gangs() -> None:
    urgent = job("urgent", gpus=4)
    urgent[1]["spec"]["template"]["spec"]["priorityClassName"] = "high"
    high = objects("{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000}")

    outcome = simulate(teams(), node("one", 4), high, job("early", gpus=4), urgent)

    assert fates(outcome) == {"urgent": "Admitted", "early": HoldReason.DEVICES_BUSY}


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1alpha3"])
def test_taint_rules_are_part_of_the_cluster(version: str) -> None:
    rule = refused.rule({"driver": "gpu.example.com"}) | {"apiVersion": f"resource.k8s.io/{version}"}

    rules = expand([rule]).snapshot.taint_rules

    assert [(name, rule.driver, rule.taint.effect) for name, rule in rules.items()] == [
        ("good", "gpu.example.com", "NoExecute")
    ]


def test_a_class_that_does_not_exist_is_told_before_the_quota_that_it_exceeds() -> None:
    queue, meter, device_class = teams(quota=8)
    meter["spec"]["sources"][0]["deviceClasses"].append("gpx")
    template, train = job("a", gpus=8)
    template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "gpx"

    outcome = simulate([queue, meter, device_class], node("one", 8), job("first", gpus=8), [template, train])

    assert of(outcome, "first").reason is None
    assert of(outcome, "a").reason == HoldReason.NO_FEASIBLE_PLACEMENT
    assert of(outcome, "a").message.endswith("device class gpx, which does not exist; did you mean gpu?")


def test_a_taint_rule_keeps_gangs_off_devices() -> None:
    rule = refused.rule({"pool": "one"})

    assert fates(simulate(teams(), node("one", 1), node("two", 1), job("a"), [rule])) == {"a": "Admitted"}
    assert fates(simulate(teams(), node("one", 1), job("a"), [rule])) == {"a": HoldReason.NO_FEASIBLE_PLACEMENT}


@pytest.mark.parametrize(
    ("release", "fate"), [(Release.V1_36, HoldReason.NO_FEASIBLE_PLACEMENT), (Release.V1_37, "Admitted")]
)
def test_a_taint_rule_without_a_selector_is_decided_by_the_profile(release: Release, fate: str) -> None:
    """A rule without a selector matches every device in 1.36, and none in 1.37."""
    cluster_state = expand(teams(), node("one", 1), job("a"), [refused.rule()], profile=compatibility.profile(release))

    assert fates(asyncio.run(offline.simulate(cluster_state))) == {"a": fate}


def a_fence(**toleration: str) -> Objects:
    """The rule of a fence, as a dump shows it, and a claim that tolerates something."""
    rule = {
        "deviceSelector": {"driver": "gpu.example.com"},
        "taint": {"key": "muster.dev/fence", "effect": "NoSchedule"},
    }
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "tolerations": [toleration]}}
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceTaintRule",
            "metadata": {"name": "muster-fence-gpu.example.com"},
            "spec": rule,
        },
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "other"},
            "spec": {"devices": {"requests": [request]}},
        },
    ]


def test_behind_a_fence_that_the_input_shows_muster_allocates() -> None:
    fence = a_fence(key="example.com/other", operator="Exists")

    gangs = simulate(teams(), node("one", 4), job("a", pods=2), job("b", pods=2), fence, until_empty=True).gangs

    assert [(gang.name, gang.verdict, gang.placement) for gang in gangs] == [
        ("a", Verdict.ADMITTED, "Allocate"),
        ("b", Verdict.ADMITTED, "Allocate"),
    ]


def test_a_fence_that_a_claim_of_the_input_gets_past_does_not_count() -> None:
    gang = of(simulate(teams(), node("one", 4), job("train"), a_fence(operator="Exists")), "train")

    assert (gang.verdict, gang.placement) == (Verdict.ADMITTED, "Pin")
