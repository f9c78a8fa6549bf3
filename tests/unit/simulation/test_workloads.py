"""`muster simulate` makes the pods of JobSets and training jobs as it makes those of Jobs."""

from typing import Any

import pytest

from admission.api.values import names
from admission.api.values.names import Held
from tests import standins
from tests.unit.simulation.test_offline import (
    RACK,
    Objects,
    expand,
    fates,
    in_rack,
    job,
    node,
    objects,
    of,
    simulate,
    teams,
)

Json = dict[str, Any]


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


# Later waves.


def staged(workers: int, *, waits_for: str = "", **of_pods: Json) -> Objects:
    """A JobSet whose driver comes first, and then so many workers. waits_for: the driver's status, not the order."""
    (obj,) = jobset(spec={} if waits_for else IN_ORDER)
    driver, more = obj["spec"]["replicatedJobs"]
    more["replicas"] = workers
    for one in (driver, more):
        one["template"]["spec"]["template"] = {**template(), "metadata": of_pods}
    if waits_for:
        more["dependsOn"] = [{"name": "driver", "status": waits_for}]
    return [*devices(), obj]


IN_ORDER = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
IN_A_RACK = {"muster.dev/topology": RACK}
NO_PLACE = "NoFeasiblePlacement: pod train-workers-"

LATER: dict[str, tuple[Objects, int, str]] = {
    "they fill the cluster beside the driver, each in a rack": (staged(3, annotations=IN_A_RACK), 8, ""),
    "the driver leaves too little": (staged(4), 8, f" beside driver: {NO_PLACE}3 needs 1 device"),
    "they are too many alone": (staged(5), 8, f": {NO_PLACE}4 needs 1 device"),
    "beside the driver they exceed the quota": (staged(3), 3, " beside driver: QuotaExceeded: queue team has 3 gpus"),
    "they wait for a driver that has ended": (staged(4, waits_for="Complete"), 8, ""),
    "these exceed the quota": (staged(3, waits_for="Complete"), 2, ": QuotaExceeded: queue team has 2 gpus left"),
}


@pytest.mark.parametrize(
    ("workers", "later"), [(2, ()), (3, ("may start, but its workers never fit beside driver: NoFeasiblePlacement: ",))]
)
def test_later_pods_that_have_to_be_where_the_first_ones_are_are_looked_at_beside_these(
    workers: int, later: tuple[str, ...]
) -> None:
    *others, made = staged(workers)
    driver, more = (one["template"]["spec"]["template"] for one in made["spec"]["replicatedJobs"])
    driver["metadata"] = {"labels": {"role": "driver"}}
    term = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"role": "driver"}}}
    more["spec"] |= {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    racks = [*in_rack("r1", "one", 3), *in_rack("r2", "two", 1)]

    gang = of(simulate(teams(), racks, [*others, made]), "train")

    assert len(gang.later) == len(later)
    assert all(why.startswith(said) for why, said in zip(gang.later, later, strict=True))


@pytest.mark.parametrize(("objects_", "quota", "never"), LATER.values(), ids=LATER)
def test_later_pods_of_a_jobset_are_looked_at_alone_and_beside_those_that_run_on(
    objects_: Objects, quota: int, never: str
) -> None:
    racks = [*in_rack("r1", "one", 3), *in_rack("r2", "two", 1)]

    gang = of(simulate(teams(quota=quota), racks, objects_), "train")

    assert (gang.verdict, len(gang.plan)) == ("Admitted", 1)
    said = "may start, but its workers never fit"
    assert [why.startswith(f"{said}{never}") for why in gang.later] == ([True] if never else []), gang.later


@pytest.mark.parametrize(("app", "never"), [("cache", 0), ("nobody", 1)])
def test_later_pods_that_have_to_be_where_a_pod_of_others_is_find_it_there(app: str, never: int) -> None:
    *others, made = staged(2)
    term = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": app}}}
    more = made["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]
    more["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    cache = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "cache", "labels": {"app": "cache"}},
        "spec": {"containers": [{"name": "main", "image": "cache"}], "nodeName": "one"},
        "status": {"phase": "Running"},
    }
    racks = [*in_rack("r1", "one", 3), *in_rack("r2", "two", 1)]

    gang = of(simulate(teams(), racks, [cache], [*others, made]), "train")

    assert (gang.verdict, len(gang.later)) == ("Admitted", never), gang.later


def test_later_pods_that_take_the_place_of_one_that_runs_are_named_before_it() -> None:
    *others, made = staged(2)
    _, more = (one["template"]["spec"]["template"]["spec"] for one in made["spec"]["replicatedJobs"])
    more["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "large"}]
    machines = [*node("one", 2), *node("two", 2)]

    gang = of(simulate(teams(), machines, [*others, made, job("large", gpus=2)[0]]), "train")

    said = "they leave no place to train-driver-0, which runs by then: pod train-driver-0 needs 1 device"
    assert [said in why for why in gang.later] == [True], gang.later


def test_later_pods_are_looked_at_beside_nothing_else() -> None:
    """They may start when the others have ended; so what is in use now says nothing about them."""
    outcome = simulate(teams(), node("one", 4), job("other", gpus=3), staged(3))

    assert fates(outcome) == {"other": "Admitted", "train": "Admitted"}
    assert of(outcome, "train").later == ()


@pytest.mark.parametrize(("workers", "never"), [(2, []), (3, ["may start, but its launcher never fit beside worker"])])
def test_a_launcher_is_looked_at_beside_the_workers_that_it_waits_for(workers: int, never: list[str]) -> None:
    roles = {
        "Launcher": {"replicas": 1, "template": template("large")},
        "Worker": {"replicas": workers, "template": template()},
    }
    policy = {"schedulingPolicy": {"minAvailable": 1}}
    spec = {"launcherCreationPolicy": "WaitForWorkersReady", "runPolicy": policy, "mpiReplicaSpecs": roles}
    mpi = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "ring"}, "spec": spec}

    gang = of(simulate(teams(), node("one", 4), [mpi, *devices(), job("large", gpus=2)[0]]), "ring")

    assert len(gang.plan) == workers
    assert [why.partition(":")[0] for why in gang.later] == never


def serving(size: int, **more: Any) -> Objects:
    """A LeaderWorkerSet whose groups have a rack each, and its leader, which is there."""
    lws: Json = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {
            "name": "serve",
            "uid": "s",
            "annotations": {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"},
        },
        "spec": {"leaderWorkerTemplate": {"size": size, "workerTemplate": template(), **more}},
    }
    leaders = standins.leaders({**lws})
    leaders["metadata"]["uid"] = "l"
    return [lws, leaders, *map(standins.grouped, standins.stateful_set_pods(leaders)), *devices()]


def test_workers_that_follow_their_leader_into_its_domain_are_looked_at_there_beside_it() -> None:
    nodes = [*node("one", 2), *node("two", 2), *node("three", 2)]
    for obj in nodes[::2]:
        obj["metadata"]["labels"] = {"rack": "r2" if obj["metadata"]["name"] == "three" else "r1"}
    (fits,), (never,) = (simulate(teams(), nodes, serving(size, leaderTemplate=template())).gangs for size in (4, 5))

    assert (fits.verdict, len(fits.plan), fits.later) == ("Admitted", 1, ())
    assert (never.verdict, len(never.plan)) == ("Admitted", 1)
    assert [why[:61] for why in never.later] == ["may start, but its workers never fit: NoFeasiblePlacement: no"]


def test_a_leader_waits_whose_workers_never_fit_its_domain_if_they_are_like_it() -> None:
    nodes = [*node("one", 2), *node("two", 2)]
    for obj in nodes[::2]:
        obj["metadata"]["labels"] = {"rack": "r1"}

    (never,) = simulate(teams(), nodes, serving(5)).gangs

    assert (never.verdict, never.reason) == ("Held", "NoFeasiblePlacement")
    assert "pod serve-0 (follower 4) needs 1 device" in never.message


@pytest.mark.parametrize("of_leader", [{}, {"leaderTemplate": template()}])
def test_a_leader_gets_a_domain_that_takes_its_workers_or_these_are_named(of_leader: Json) -> None:
    """The set's controller pins the workers into the domain of their leader."""
    nodes = [*node("a-small", 1), *node("b", 2), *node("c", 2)]
    for obj in nodes[::2]:
        obj["metadata"]["labels"] = {"rack": "r1" if obj["metadata"]["name"] == "a-small" else "r2"}

    (gang,) = simulate(teams(), nodes, serving(4, **of_leader)).gangs

    unplanned = "the other pods of the exclusive group of pod serve-0: whether they fit the domain of this one"
    assert gang.not_simulated == ((unplanned,) if of_leader else ())
    assert ({pod.node for pod in gang.plan} <= {"b", "c"}) is not bool(of_leader)
    assert gang.charges == {"gpus": 1}, "those that follow are charged when they come"


def test_a_jobset_whose_pods_come_together_has_no_later_ones() -> None:
    assert of(simulate(teams(), node("one", 4), devices(), jobset()), "train").later == ()


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
