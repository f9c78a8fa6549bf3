"""`muster simulate` looks at the pods that workloads make when others run, before they are there."""

from typing import Any

import pytest

from tests import standins
from tests.unit.simulation.simulated import (
    RACK,
    Objects,
    fates,
    in_rack,
    job,
    node,
    of,
    simulate,
    teams,
)
from tests.unit.simulation.test_workloads import IN_ORDER, Json, devices, jobset, template


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
