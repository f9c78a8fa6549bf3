"""Every kind of workload on a real control plane: who is a gang, from what is there of it, and starts whole."""

from typing import Any

import pytest

from tests import standins
from tests.controlplane.observing import eventually
from tests.e2e import herds
from tests.e2e.herds import Herd, named
from tests.e2e.kinds.parents import CASES, RAY, a_jobset, jobs_and_sets, run, wait_charged
from tests.standins import an_object

pytestmark = pytest.mark.timeout(300)


def test_every_workload_is_held_until_all_of_its_pods_exist_and_starts_whole(herd: Herd) -> None:
    found = {case: parts(herd) for case, parts in CASES.items()}
    early = {case: first() for case, (_, first, _) in found.items()}
    held = {}
    for case, pods in early.items():
        message = f"{len(pods)} of 3 pods exist; the gang starts with all of them"
        held[case] = herd.wait_held(message, *pods, of=found[case][0])

    whole = {case: [*early[case], *rest()] for case, (_, _, rest) in found.items()}
    for case, all_of_it in whole.items():
        started = herd.wait_running(*all_of_it)
        assert started["metadata"]["name"] == held[case]["metadata"]["name"], case
        assert started["status"]["charges"] == {herd.lab.meters[0]: "3"}, case
    herd.clear(*(parent for parent, _, _ in found.values()), *jobs_and_sets(herd))


def test_jobs_start_whole_and_what_else_makes_pods_one_by_one(herd: Herd) -> None:
    """A StatefulSet that is OrderedReady makes its second pod when the first is ready."""
    jobs = [
        herd.put(an_object("batch/v1", "Job", name, parallelism=3, completions=3, template=herd.template(), **more))
        for name, more in (("plain", {}), ("indexed", {"completionMode": "Indexed"}))
    ]
    sets = []
    for kind, more in (("StatefulSet", {"serviceName": "x"}), ("Deployment", {})):
        template = herd.template("Always", app=kind.lower())
        selector = {"matchLabels": {"app": kind.lower()}}
        sets.append(
            herd.put(an_object("apps/v1", kind, kind.lower(), replicas=2, selector=selector, template=template, **more))
        )
    workflow = herd.put(an_object("argoproj.io/v1alpha1", "Workflow", "steps"))
    steps = named(herd.all(standins.pod_of(workflow, f"steps-{number}", herd.template()) for number in range(2)))

    for job in jobs:
        gang = herd.wait_running(*herd.pods_of(job, 3))
        assert gang["spec"]["workload"]["name"] == job["metadata"]["name"]
    for name in ("statefulset-0", "statefulset-1", *steps):
        assert herd.wait_running(name)["spec"]["workload"]["kind"] == "Pod"
    fronts = eventually(
        lambda: found if len(found := [name for name in herd.pods if name.startswith("deployment-")]) == 2 else None,
        what="two pods of the Deployment",
    )
    for name in fronts:
        herd.wait_running(name)
    herd.clear(workflow, *jobs, *sets)


def test_a_kind_that_is_installed_while_muster_runs_is_noticed_and_may_go_again(herd: Herd) -> None:
    """Muster looks for what was not served every minute."""
    group = {"groupName": "big", "replicas": 1, "minReplicas": 1, "numOfHosts": 2}
    workers = [{**group, "template": herd.template("Always")}]
    cluster = herd.put(
        an_object(*RAY, "ray", headGroupSpec={"template": herd.template("Always")}, workerGroupSpecs=workers)
    )
    head, *others = standins.ray_pods(cluster)
    herd.put(head)
    herd.wait_held("1 of 3 pods exist", "ray-head", of=cluster, within=150.0)
    whole = ["ray-head", *named(herd.all(others))]
    herd.wait_running(*whole)

    # Ray scales it, up and down.
    more = standins.ray_pods(cluster, big=2)[len(whole) :]
    herd.lab.client.merge_patch(
        f"{herd.path(cluster)}/ray", {"spec": {"workerGroupSpecs": [{**workers[0], "replicas": 2}]}}
    )
    herd.wait_running(*whole, *named(herd.all(more)))
    wait_charged(herd, 5)
    herd.delete(*more)
    wait_charged(herd, 3)
    herd.clear(cluster)

    herds.remove(herd.lab.client, RAY)
    after = herd.put(an_object("batch/v1", "Job", "after", parallelism=2, completions=2, template=herd.template()))
    herd.wait_running(*herd.pods_of(after, 2))
    herd.clear(after)
    assert herd.lab.muster.wrong_books() is None


def test_of_a_jobset_whose_later_pods_never_fit_it_is_said_before_they_are_there(herd: Herd) -> None:
    """64 devices are there, of which the driver has one, and the workers that come when it is ready need one each."""
    in_order: dict[str, Any] = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
    fits, never = (a_jobset(herd, name, workers=count, **in_order) for name, count in (("fits", 63), ("never", 65)))
    drivers = {name: run(herd, obj, "driver") for name, obj in (("fits", fits), ("never", never))}

    gangs = {name: herd.wait_running(*pods) for name, pods in drivers.items()}

    path = f"{herd.gangs_path}/{gangs['never']['metadata']['name']}"
    said = eventually(lambda: herd.lab.client.get(path)["status"].get("later"), what="later pods are looked at")
    assert said[0].startswith("may start, but its workers never fit: NoFeasiblePlacement: pod never-workers-64 needs")
    assert f"It {said[0]}." in herd.muster.command("why", f"{herd.lab.namespace.name}/never")
    other = herd.lab.client.get(f"{herd.gangs_path}/{gangs['fits']['metadata']['name']}")
    assert "later" not in other["status"]
    herd.clear(fits, never, *jobs_and_sets(herd))
