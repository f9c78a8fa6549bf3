"""`muster simulate` makes the pods of JobSets and training jobs as it makes those of Jobs."""

from typing import Any

import pytest

from admission.api.values import names
from admission.api.values.names import Held
from tests.unit.simulation.simulated import (
    Objects,
    expand,
    fates,
    job,
    node,
    objects,
    of,
    simulate,
    teams,
)

Json = dict[str, Any]

IN_ORDER = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}


def template(claims: str = "train") -> Json:
    """A pod with the devices of a template of claims."""
    wanted = [{"name": "gpu", "resourceClaimTemplateName": claims}]
    return {
        "spec": {"containers": [{"name": "main", "image": "train"}], "resourceClaims": wanted, "restartPolicy": "Never"}
    }


def devices(gpus: int = 1) -> Objects:
    """The template of claims that these pods name."""
    return job("train", gpus=gpus)[:1]


def jobset(name: str = "train", *, spec: Json | None = None, status: Json | None = None, **metadata: Any) -> Objects:
    """A JobSet of a driver and two workers."""
    jobs = [
        {
            "name": role,
            "replicas": count,
            "template": {"spec": {"parallelism": 1, "completions": 1, "template": template()}},
        }
        for role, count in (("driver", 1), ("workers", 2))
    ]
    found: Json = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, **metadata},
        "spec": {"replicatedJobs": jobs, **(spec or {})},
        "status": status or {},
    }
    return [found]


def training(name: str = "train") -> Objects:
    """A PyTorchJob of a master and three workers."""
    roles = {role: {"replicas": count, "template": template()} for role, count in (("Master", 1), ("Worker", 3))}
    spec = {"pytorchReplicaSpecs": roles}
    return [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name}, "spec": spec}]


def owned(by: Json, obj: Json) -> Json:
    """An object that another one has made."""
    owner = {"apiVersion": by["apiVersion"], "kind": by["kind"], "name": by["metadata"]["name"], "controller": True}
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [{**owner, "uid": by["metadata"]["uid"]}]}}


def test_the_pods_of_a_jobset_are_one_gang() -> None:
    outcome = simulate(teams(), node("one", 4), devices(), jobset())

    gang = of(outcome, "train")
    assert len(outcome.gangs) == 1
    assert (gang.verdict, gang.charges) == ("Admitted", {"gpus": 3})
    assert [pod.pod for pod in gang.plan] == [
        "default/train-driver-0",
        "default/train-workers-0",
        "default/train-workers-1",
    ]


def test_a_training_job_waits_whole_where_all_of_its_replicas_do_not_fit() -> None:
    outcome = simulate(teams(), node("one", 3), devices(), training(), jobset("small"))

    assert fates(outcome) == {"train": "NoFeasiblePlacement", "small": "Admitted"}


def test_only_the_jobs_of_a_jobset_in_the_input_are_simulated() -> None:
    whole = jobset(uid="u-1")
    (made,) = [one for one in job("train-driver-0") if one["kind"] == "Job"]

    cluster_state = expand(teams(), devices(), whole, [owned(whole[0], made)])

    assert [pod.meta.name for pod in cluster_state.snapshot.pods.values()] == ["train-driver-0-0"]


@pytest.mark.parametrize(
    ("spec", "status", "annotations", "pods"),
    [
        ({"suspend": True}, {}, {}, 0),
        ({"suspend": True}, {}, {names.HELD: Held.WAITING}, 3),
        ({}, {"conditions": [{"type": "Completed", "status": "True"}]}, {}, 0),
        ({}, {"conditions": [{"type": "Failed", "status": "False"}]}, {}, 3),
    ],
)
def test_a_jobset_that_is_suspended_or_over_makes_no_pods(
    spec: Json, status: Json, annotations: dict[str, str], pods: int
) -> None:
    cluster_state = expand(teams(), devices(), jobset(spec=spec, status=status, annotations=annotations))

    assert len(cluster_state.snapshot.pods) == pods


def test_of_a_jobset_in_order_the_first_pods_are_simulated_and_a_note_says_so() -> None:
    cluster_state = expand(teams(), devices(), jobset(spec={"startupPolicy": {"startupPolicyOrder": "InOrder"}}))

    assert [pod.meta.name for pod in cluster_state.snapshot.pods.values()] == ["train-driver-0"]
    assert (
        "JobSet default/train makes some pods only when others run; only the first ones are simulated, and of the"
        " others whether they fit an empty cluster, beside those that run then"
    ) in cluster_state.notes


def test_an_unreadable_pod_template_is_a_problem_of_its_object() -> None:
    whole = jobset()
    whole[0]["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]["resourceClaims"] = 7

    ((index, error),) = expand(teams(), devices(), whole).problems

    assert index == len(teams()) + 1
    assert [problem.field for problem in error.problems] == [
        "spec.replicatedJobs[1].template.spec.template.spec.resourceClaims"
    ]


def test_a_workload_with_more_pods_than_a_gang_may_have_is_a_problem() -> None:
    whole = jobset()
    whole[0]["spec"]["replicatedJobs"][1]["replicas"] = 20_000

    ((_, error),) = expand(teams(), devices(), whole).problems

    assert error.problems[0].field == "spec.replicatedJobs"


def test_a_jobset_with_a_template_that_the_webhook_refuses_is_denied() -> None:
    whole = jobset()
    whole[0]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"] = {
        "labels": {names.QUEUE: "nowhere"}
    }

    assert of(simulate(teams(), devices(), whole), "train").verdict == "Denied"


def test_other_kinds_make_no_pods_and_a_note_says_so() -> None:
    cluster = objects("{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: ray}, spec: {workerGroupSpecs: []}}")

    (note,) = expand(teams(), cluster).notes

    assert note == "RayCluster default/ray makes no pods here; those that the input shows are simulated"


def test_the_pods_of_a_ray_job_but_its_submitter_are_one_gang() -> None:
    cluster = {
        "headGroupSpec": {"template": template()},
        "workerGroupSpecs": [{"groupName": "w", "replicas": 2, "template": template()}],
    }
    spec = {"shutdownAfterJobFinishes": True, "rayClusterSpec": cluster}
    ray_job: Json = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "ray"}, "spec": spec}

    outcome = simulate(teams(), node("one", 4), devices(), [ray_job])

    gang = of(outcome, "ray")
    assert len(outcome.gangs) == 1
    assert (gang.verdict, gang.charges) == ("Admitted", {"gpus": 3})


# Claims of PodGroups.


def ring(*, claim: str = "fabric", **group: Any) -> Objects:
    """A PodGroup with a claim of its own, and two pods with a claim each beside one that they call `claim`."""
    entry = {"name": "fabric", "resourceClaimTemplateName": "ring"}
    own = {"name": "own", "resourceClaimTemplateName": "ring"}
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": [entry]}
    version = "scheduling.k8s.io/v1beta1"
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"ring-{number}"},
            "spec": {
                "containers": [{"name": "main", "image": "train"}],
                "resourceClaims": [own, {**entry, "name": claim}],
                "schedulingGroup": {"podGroupName": "ring"},
            },
        }
        for number in range(2)
    ]
    return [
        job("ring")[0],
        {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": "ring"}, "spec": spec, **group},
        *pods,
    ]


def test_a_claim_of_a_pod_group_is_made_once_for_all_of_its_pods() -> None:
    cluster_state = expand(teams(), node("one", 4), ring())
    outcome = simulate(teams(), node("one", 4), ring())

    assert sorted(cluster_state.snapshot.claims) == ["default/ring-0-own", "default/ring-1-own", "default/ring-fabric"]
    (gang,) = outcome.gangs
    assert (gang.verdict, dict(gang.charges)) == ("Admitted", {"gpus": 3})
    assert any("PodGroup ring: its claims are made once" in note for note in cluster_state.notes)
    owner = cluster_state.snapshot.claims["default/ring-fabric"].meta.controller
    assert owner is not None
    assert (owner.api_version, owner.kind, owner.name) == ("scheduling.k8s.io/v1beta1", "PodGroup", "ring")


def test_a_claim_that_the_pod_group_calls_otherwise_is_the_pods_own() -> None:
    cluster_state = expand(teams(), node("one", 4), ring(claim="other"))

    assert "default/ring-fabric" not in cluster_state.snapshot.claims
    assert not any("made once" in note for note in cluster_state.notes)


def test_a_claim_that_was_made_for_a_pod_group_is_used_by_pods_whose_status_does_not_name_it() -> None:
    made = {"resourceClaimStatuses": [{"name": "fabric", "resourceClaimName": "made"}]}
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "made"},
        "spec": {"devices": {"requests": [request]}},
    }

    snapshot = expand(teams(), node("one", 4), ring(status=made), [claim]).snapshot

    assert sorted(snapshot.claims) == ["default/made", "default/ring-0-own", "default/ring-1-own"]
    assert [pod.generated_claims["fabric"] for pod in snapshot.pods.values()] == ["made", "made"]


def test_a_claim_of_a_pod_group_that_names_nothing_is_a_problem() -> None:
    objects = ring()
    del objects[1]["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]

    ((_, error),) = expand(teams(), objects).problems

    assert [problem.field for problem in error.problems] == ["spec.resourceClaims[0]"]


def test_a_runtime_class_that_no_api_server_has_applied_is_noted() -> None:
    (manifest,) = training()
    for role in manifest["spec"]["pytorchReplicaSpecs"].values():
        role["template"]["spec"]["runtimeClassName"] = "kata"

    (note,) = (one for one in expand(teams(), devices(), [manifest]).notes if "RuntimeClass" in one)

    assert note == (
        "pod default/train-master-0 has RuntimeClass kata, which the input does not have: its overhead and the nodes"
        " that it selects, which the API server adds to the pod, are not simulated"
    )


RUNTIME = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "kata"},
    "handler": "kata",
    "overhead": {"podFixed": {"cpu": "2"}},
    "scheduling": {"nodeSelector": {"runtime": "kata"}, "tolerations": [{"key": "kata", "operator": "Exists"}]},
}


def in_runtime(**spec: Any) -> Objects:
    template, made = job("train")
    made["spec"]["template"]["spec"] |= {"runtimeClassName": "kata", **spec}
    return [template, made]


def test_new_pods_have_what_the_api_server_adds_by_their_runtime_class() -> None:
    expanded = expand(teams(), in_runtime(tolerations=[{"key": "x", "operator": "Exists"}]), [RUNTIME])

    (pod,) = expanded.snapshot.pods.values()
    assert pod.requests["cpu"] == 2000
    assert pod.node_selector == {"runtime": "kata"}
    assert [one.key for one in pod.tolerations] == ["x", "kata"]
    assert expanded.notes == (
        "Job default/train: its pods have overhead cpu 2 and node selector runtime=kata by RuntimeClass kata",
    )


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"nodeSelector": {"runtime": "gvisor"}}, "nodeSelector[runtime]"),
        ({"overhead": {"cpu": "1"}}, "overhead"),
        ({"overhead": {"cpu": "1"}, "runtimeClassName": None}, "overhead"),
    ],
)
def test_pods_at_odds_with_their_runtime_class_are_a_problem_of_what_makes_them(spec: Json, field: str) -> None:
    made = in_runtime(**spec)
    made[1]["spec"] |= {"parallelism": 2, "completions": 2}

    ((_, error),) = expand(teams(), made, [RUNTIME]).problems

    assert (error.kind, error.name) == ("Job", "default/train")
    assert error.problems[0].message.startswith(f"spec.{field} of its pods ")


def a_limit_range(name: str, namespace: str = "default", **item: Any) -> Json:
    spec = {"limits": [{"type": "Pod", "max": {"cpu": "64"}}, {"type": "Container", **item}]}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


@pytest.mark.parametrize(
    ("resources", "item", "cpu"),
    [
        ({}, {"defaultRequest": {"cpu": "200m"}, "default": {"cpu": "500m"}}, 200),
        ({}, {"default": {"cpu": "500m"}}, 500),
        ({}, {"max": {"cpu": 2}, "min": {"cpu": "100m"}}, 2000),
        ({}, {"min": {"cpu": "100m"}}, 100),
        ({"limits": {"cpu": "400m"}}, {"defaultRequest": {"cpu": "200m"}}, 400),
        ({"requests": {"cpu": "1"}}, {"defaultRequest": {"cpu": "200m"}}, 1000),
    ],
)
def test_new_pods_request_what_limit_ranges_of_their_namespace_say(resources: Json, item: Json, cpu: int) -> None:
    template, made = job("train")
    (container,) = made["spec"]["template"]["spec"]["containers"]
    container["resources"] = {**container.get("resources", {}), **resources}
    others = [a_limit_range("z", defaultRequest={"cpu": "7"}), a_limit_range("a", "other", defaultRequest={"cpu": "9"})]

    expanded = expand(teams(), [template, made, a_limit_range("l", **item), *others])

    (pod,) = expanded.snapshot.pods.values()
    assert pod.requests["cpu"] == cpu
    told = ("Job default/train: its pods have requests of cpu by LimitRanges",)
    assert expanded.notes == (() if resources else told)


def test_the_constraints_of_a_pod_group_are_named_of_a_gang_that_is_admitted() -> None:
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "pg"},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": 1}},
            "schedulingConstraints": {"topology": [{"key": "rack"}]},
        },
    }
    spec = {**template()["spec"], "schedulingGroup": {"podGroupName": "pg"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}

    gang = of(simulate(teams(), node("one", 4), devices(), [group, pod]), "pg")

    assert gang.verdict == "Admitted"
    assert [text.partition(":")[0] for text in gang.not_simulated] == ["spec.schedulingConstraints of PodGroup pg"]


IN_OTHER_SUBGROUPS = {"muster.dev/subgroup": "all", "muster.dev/subgroup-topology": "pool"}


@pytest.mark.parametrize("of_pods", [{}, IN_OTHER_SUBGROUPS])
def test_the_other_pods_of_an_exclusive_job_are_planned_with_the_first_one_or_named(of_pods: Json) -> None:
    annotations = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "pool"}
    made = {**template(), "metadata": {"annotations": of_pods}}
    job = {"name": "a", "template": {"spec": {"parallelism": 4, "completions": 4, "template": made}}}
    pool = node("one", 4)
    pool[0]["metadata"]["labels"] = {"pool": "x"}
    objects_ = [*teams(), *pool, *devices()]
    found = jobset(spec={"replicatedJobs": [job]}, annotations=annotations)

    gang = of(simulate(objects_, found), "train")

    assert gang.verdict == "Admitted"
    unplanned = "the other pods of the exclusive Job of pod train-a-0: whether they fit the domain of this one"
    assert gang.not_simulated == ((unplanned,) if of_pods else ())
    assert not [note for note in expand(objects_, found).notes if "empty cluster" in note]
