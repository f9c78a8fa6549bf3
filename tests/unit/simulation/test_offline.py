"""`muster simulate` from manifests to outcome: what surrounds Muster is played, and Muster's own cycle decides."""

import asyncio
import copy
import json
import textwrap
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from admission.api.values import names
from admission.api.values.names import Held
from admission.api.values.reasons import DenyReason, HoldReason
from admission.dra import compatibility
from admission.dra.compatibility import Release
from admission.simulation import expand as simulation_expand, offline
from admission.simulation.expand import Expanded
from admission.simulation.offline import GangOutcome, Outcome, Verdict
from tests.unit.api import natives, refused, unknown

Objects = list[dict[str, Any]]
RACK = "example.com/rack"


def objects(text: str) -> Objects:
    return [found for found in yaml.safe_load_all(textwrap.dedent(text)) if found]


def node(name: str, gpus: int) -> Objects:
    devices = [{"name": f"gpu-{number}"} for number in range(gpus)]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": name, "pool": pool, "devices": devices}
    return [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}},
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec},
    ]


def in_rack(rack: str, name: str, gpus: int) -> Objects:
    """A node with a label that says in which rack it is."""
    made, *rest = node(name, gpus)
    return [{**made, "metadata": {"name": name, "labels": {RACK: rack}}}, *rest]


def job(name: str, *, pods: int = 1, gpus: int = 1, **metadata: Any) -> Objects:
    """A template of so many GPUs, and a Job whose pods use it."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": gpus}}
    template = {"spec": {"devices": {"requests": [request]}}}
    claims = [{"name": "gpu", "resourceClaimTemplateName": name}]
    pod = {
        "spec": {"containers": [{"name": "main", "image": "train"}], "resourceClaims": claims, "restartPolicy": "Never"}
    }
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": name},
            "spec": template,
        },
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, **metadata},
            "spec": {"parallelism": pods, "completions": pods, "template": pod},
        },
    ]


def teams(quota: int = 8) -> Objects:
    """One queue for every namespace, a class, and a meter that counts its devices."""
    return objects(f"""
        apiVersion: muster.dev/v1alpha1
        kind: Queue
        metadata: {{name: team}}
        spec:
          namespaceSelector: {{}}
          default: true
          quotas: [{{meter: gpus, nominal: {quota}}}]
        ---
        apiVersion: muster.dev/v1alpha1
        kind: Meter
        metadata: {{name: gpus}}
        spec: {{sources: [{{deviceClasses: [gpu], count: {{}}}}]}}
        ---
        apiVersion: resource.k8s.io/v1
        kind: DeviceClass
        metadata: {{name: gpu}}
        spec: {{}}
        """)


def expand(*parts: Objects, **options: Any) -> Expanded:
    return simulation_expand.expand([found for part in parts for found in part], **options)


def simulate(*parts: Objects, until_empty: bool = False) -> Outcome:
    cluster_state = expand(*parts)
    assert cluster_state.problems == ()
    return asyncio.run(offline.simulate(cluster_state, until_empty=until_empty))


def fates(outcome: Outcome) -> dict[str, str]:
    return {gang.name: gang.reason or gang.verdict for gang in outcome.gangs}


def of(outcome: Outcome, name: str) -> GangOutcome:
    return next(gang for gang in outcome.gangs if gang.name == name)


def nodes_of(gang: GangOutcome) -> list[str]:
    return sorted(pod.node for pod in gang.plan)


def use_of(outcome: Outcome, queue: str = "team", meter: str = "gpus") -> int:
    use = next(found for found in outcome.queues if found.name == queue).meters[meter]  # type: ignore[index]
    return use.reserved + use.used


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


RUNNING = """
    apiVersion: v1
    kind: Pod
    metadata: {name: old, labels: {muster.dev/queue: team}}
    spec:
      nodeName: one
      containers: [{name: main, image: train}]
      resourceClaims: [{name: gpu, resourceClaimName: old}]
    status: {phase: Running}
    ---
    apiVersion: resource.k8s.io/v1
    kind: ResourceClaim
    metadata: {name: old}
    spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu, count: 3}}]}}
    status:
      allocation:
        devices:
          results:
          - {request: gpu, driver: gpu.example.com, pool: one, device: gpu-0}
          - {request: gpu, driver: gpu.example.com, pool: one, device: gpu-1}
          - {request: gpu, driver: gpu.example.com, pool: one, device: gpu-2}
    """


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


FLAWS = {
    "a name": ({"apiVersion": "v1", "kind": "Pod"}, "metadata.name"),
    "a shape that is not read": (
        {"apiVersion": "resource.k8s.io/v1alpha2", "kind": "ResourceClaim", "metadata": {"name": "a"}},
        "apiVersion",
    ),
    "a number of pods": (natives.job(parallelism=10**9), "spec.parallelism"),
    "a claim in a template": (
        natives.job(pod={"resourceClaims": [{"name": "gpu"}]}),
        "spec.template.spec.resourceClaims[0]",
    ),
    "a template": (
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {"template": {"spec": 1}}},
        "spec.template.spec",
    ),
    "metadata": ({"apiVersion": "v1", "kind": "Node", "metadata": []}, "metadata.name"),
}


REFUSED = refused.REFUSED | refused.STRICTER | refused.CEL


@pytest.mark.parametrize(("obj", "field"), FLAWS.values(), ids=FLAWS)
def test_an_input_problem_names_the_object_and_its_field(obj: dict[str, Any], field: str) -> None:
    cluster_state = expand(teams(), [obj])

    assert [(index, problem.field) for index, error in cluster_state.problems for problem in error.problems] == [
        (3, field)
    ]


def test_input_that_the_api_server_would_refuse_is_refused() -> None:
    """One of each kind: which is refused for which field, `tests/unit/api/test_validation` has one by one."""
    cases = {case.obj["kind"]: case for case in REFUSED.values()}
    expected = {kind: [(3, case.field)] for kind, case in cases.items()}

    found = {
        kind: [
            (index, problem.field)
            for index, error in expand(teams(), [case.obj]).problems
            for problem in error.problems
        ]
        for kind, case in cases.items()
    }

    assert {"ResourceClaim", "ResourceSlice"} <= found.keys()
    assert found == expected


def problems_of(*objects: dict[str, Any], **options: Any) -> list[tuple[int, str]]:
    found = simulation_expand.expand(objects, **options).problems
    return [(index, problem.field) for index, error in found for problem in error.problems]


def test_fields_that_nobody_knows_are_refused_in_every_kind() -> None:
    found = {name: problems_of(obj) for name, (obj, _, _) in unknown.KUBERNETES.items()}

    assert found == {name: [(0, field)] for name, (_, field, _) in unknown.KUBERNETES.items()}


def test_the_profile_says_whose_fields_are_known() -> None:
    obj = unknown.pod(evictionResponders=[])

    assert problems_of(obj, profile=compatibility.profile(Release.V1_37)) == []
    assert problems_of(obj, profile=compatibility.profile(Release.V1_36)) == [(0, "spec.evictionResponders")]


def test_what_an_api_server_has_stored_is_not_judged_by_its_fields() -> None:
    """It comes from `kubectl get`, maybe from a newer Kubernetes, which dropped what it did not know."""
    obj = unknown.pod(newer=[])
    obj["metadata"] = {**obj["metadata"], "uid": "u-1"}

    assert problems_of(obj) == []


@pytest.mark.parametrize(
    ("api_version", "kind", "spec", "field"),
    [
        ("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"template": 0}}},
         "spec.pytorchReplicaSpecs.Worker.template.spec.resourceClaim"),
        ("apps/v1", "Deployment", {"selector": {"matchLabels": {"a": "b"}}, "template": 0},
         "spec.template.spec.resourceClaim"),
        ("argoproj.io/v1alpha1", "Rollout", {"template": 0}, None),
    ],
)  # fmt: skip
def test_pod_templates_of_any_kind_are_judged(api_version: str, kind: str, spec: Any, field: str | None) -> None:
    """Of kinds that are not simulated, too, as long as it is known where they have them."""
    template = (
        '{"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main", "image": "train"}],'
        ' "resourceClaim": []}}'
    )
    body = json.loads(json.dumps(spec).replace('"template": 0', f'"template": {template}'))
    obj = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}, "spec": body}

    assert problems_of(obj) == ([(0, field)] if field else [])


def test_input_that_the_api_server_would_accept_is_accepted() -> None:
    found = {name: expand(teams(), [obj]).problems for name, obj in refused.GOOD.items()}

    assert {name: problems for name, problems in found.items() if problems} == {}


@pytest.mark.parametrize("version", ["v1alpha3", "v1beta1", "v1beta2"])
def test_versions_with_an_equivalent_are_read_as_v1(version: str) -> None:
    (queue, meter, device_class), (template, train) = teams(), job("a", gpus=2)
    today = [queue, meter, device_class, template, train, *node("one", 2)]
    earlier = copy.deepcopy(today)
    for one in earlier:
        if one["apiVersion"] == "resource.k8s.io/v1":
            one["apiVersion"] = f"resource.k8s.io/{version}"
            if version != "v1beta2":
                _as_before(one, has_values=version == "v1beta1")

    assert earlier != today
    assert simulate(earlier).gangs == simulate(today).gangs


def _as_before(obj: dict[str, Any], *, has_values: bool) -> None:
    """Write an object in the shape of v1beta1, or without the values of capacities as v1alpha3."""
    for device in obj["spec"].get("devices", ()) if obj["kind"] == "ResourceSlice" else ():
        basic = {name: device.pop(name) for name in [*device] if name != "name"}
        if not has_values:
            basic["capacity"] = {name: one["value"] for name, one in basic.get("capacity", {}).items()}
        device["basic"] = basic
    for request in obj["spec"]["spec"]["devices"]["requests"] if obj["kind"] == "ResourceClaimTemplate" else ():
        request.update(request.pop("exactly"))


def test_what_a_version_with_an_equivalent_said_otherwise_is_refused() -> None:
    spec = {"controller": "gpu.example.com", "devices": {}}
    claim = {"apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourceClaim", "metadata": {"name": "a"}, "spec": spec}

    assert problems_of(claim) == [(0, "spec.controller")]


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClass"])
def test_a_version_without_an_equivalent_names_the_command_that_converts(kind: str) -> None:
    old = {"apiVersion": "resource.k8s.io/v1alpha2", "kind": kind, "metadata": {"name": "a"}}

    ((_, error),) = expand([old]).problems

    assert "`muster convert`" in str(error)


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


def test_kinds_that_are_not_simulated_are_noted() -> None:
    service = objects("{apiVersion: v1, kind: Service, metadata: {name: web, namespace: a}}")

    assert expand(service).notes == ("Service a/web (v1) is left out: it is not simulated",)


def test_a_repeated_input_object_is_noted_and_the_last_counts() -> None:
    cluster_state = expand(teams(quota=1), teams(quota=2))

    assert cluster_state.notes[0] == "Queue team stands more than once; the last one counts"
    assert [quota.nominal for queue in cluster_state.snapshot.queues.values() for quota in queue.quotas] == [2]


PLUGIN = """
    apiVersion: v1
    kind: Node
    metadata: {name: old}
    status: {allocatable: {cpu: 8, memory: 8Gi, pods: 110, example.com/gpu: 4}}
    ---
    apiVersion: muster.dev/v1alpha1
    kind: Meter
    metadata: {name: gpus}
    spec:
      sources: [{deviceClasses: [gpu], count: {}}]
      extendedResources: [example.com/gpu]
    ---
    apiVersion: v1
    kind: Pod
    metadata: {name: old, labels: {muster.dev/queue: team}}
    spec:
      nodeName: old
      containers: [{name: main, image: train, resources: {limits: {example.com/gpu: 2}}}]
    status: {phase: Running}
    """


def plugged_job(name: str, count: int) -> Objects:
    return objects(f"""
        apiVersion: batch/v1
        kind: Job
        metadata: {{name: {name}}}
        spec:
          template:
            spec:
              restartPolicy: Never
              containers: [{{name: main, image: train, resources: {{limits: {{example.com/gpu: {count}}}}}}}]
        """)


def test_device_plugin_resources_draw_on_the_quota_of_devices() -> None:
    cluster_state = (
        teams(quota=5),
        node("one", 4),
        objects(PLUGIN),
        plugged_job("plugged", 2),
        job("devices"),
        job("more"),
    )
    outcome = simulate(*cluster_state)

    assert fates(outcome) == {
        "old": "Admitted",
        "plugged": "Admitted",
        "devices": "Admitted",
        "more": HoldReason.QUOTA_EXCEEDED,
    }
    assert {name: of(outcome, name).charges for name in ("old", "plugged", "devices")} == {
        "old": {"gpus": 2},
        "plugged": {"gpus": 2},
        "devices": {"gpus": 1},
    }
    assert [pod.node for pod in of(outcome, "plugged").plan] == ["old"]
    assert use_of(outcome) == 5


def test_device_plugin_resources_are_released_at_the_end_of_their_gang() -> None:
    outcome = simulate(teams(quota=2), objects(PLUGIN), plugged_job("next", 2), until_empty=True)

    assert fates(outcome) == {"old": "Admitted", "next": "Admitted"}


def test_more_of_a_device_plugin_than_the_queue_could_ever_have_is_denied() -> None:
    outcome = simulate(teams(quota=3), objects(PLUGIN), plugged_job("large", 4))

    assert fates(outcome) == {"old": "Admitted", "large": DenyReason.NEVER_FITS}


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
