"""Gangs that start in parts, are scaled, restarted, have a pod replaced, or are joined by who comes later."""

import pytest

from admission.api.values import names
from tests import standins
from tests.controlplane import workloads
from tests.controlplane.fleet import Manifest
from tests.controlplane.observing import eventually
from tests.e2e.herds import Herd, named
from tests.e2e.kinds.parents import a_jobset, jobs_and_sets, lws, run, training, wait_charged
from tests.standins import an_object

pytestmark = pytest.mark.timeout(300)


def test_who_makes_pods_in_turn_starts_in_turn_and_is_another_gang_when_it_starts_again(herd: Herd) -> None:
    in_order = a_jobset(herd, "turns", startupPolicy={"startupPolicyOrder": "InOrder"})
    led, lead, follow = lws(herd, "led", startupPolicy="LeaderReady")
    application = herd.put(
        an_object("sparkoperator.k8s.io/v1beta2", "SparkApplication", "pi", executor={"instances": 3})
    )
    spark = herd.put(standins.spark_driver(application, herd.template()))
    driver, (leader,) = run(herd, in_order, "driver"), lead()

    first = herd.wait_running(*driver)
    alone = herd.wait_running(leader)
    herd.wait_running("pi-driver")

    herd.all(standins.spark_executors(spark, 1, herd.template()))
    second = herd.wait_running(*run(herd, in_order, "workers"))
    herd.wait_running(*follow())
    herd.wait_running("pi-exec-1")
    herd.all(standins.spark_executors(spark, 2, herd.template(), first=2))
    joined = herd.wait_running("pi-exec-1", "pi-exec-2", "pi-exec-3")
    assert joined["metadata"]["name"].startswith("pi-driver-executors-")

    # Both controllers make all anew: the one under the next attempt, the other with another leader.
    herd.delete(*[job for job in jobs_and_sets(herd) if job["metadata"]["name"].startswith(("turns-", "led-"))])
    herd.delete(herd.pod(leader))
    eventually(lambda: not [name for name in herd.pods if name.startswith("turns-")], what="the first try is gone")
    again = herd.wait_running(*run(herd, in_order, "driver", restarts=1))
    assert again["metadata"]["name"].startswith("turns-restart-1-")
    assert len({gang["metadata"]["uid"] for gang in (first, second, again)}) == 3
    herd.wait_running(leader, other_than=alone)
    herd.clear(in_order, led, application, *jobs_and_sets(herd))


def test_a_set_is_scaled_by_whole_groups(herd: Herd) -> None:
    """The real controller of StatefulSets makes and deletes the leaders, and the garbage collector their workers."""
    group, lead, follow = lws(herd, "scaled")
    one = herd.wait_running(*lead(), *follow())
    stays = [herd.pod(name)["metadata"]["uid"] for name in ("scaled-0", "scaled-0-1", "scaled-0-2")]
    leaders = f"{herd.path(standins.leaders(group))}/scaled"

    herd.lab.client.merge_patch(leaders, {"spec": {"replicas": 2}})
    herd.pod("scaled-1")
    herd.wait_held("1 of 3 pods exist", "scaled-1", of=group)
    more = ["scaled-1", *herd.pods_of(herd.put(standins.workers(group, herd.pod("scaled-1"))), 2)]
    other = herd.wait_running(*more)
    assert other["metadata"]["uid"] != one["metadata"]["uid"]
    herd.lab.wait_used(gpus=(0, 6))

    herd.lab.client.merge_patch(leaders, {"spec": {"replicas": 1}})
    eventually(lambda: not set(more) & set(herd.pods), what="the group is gone, the workers with their leader")
    herd.lab.wait_used(gpus=(0, 3))
    assert [pod["metadata"]["uid"] for _, pod in sorted(herd.pods.items())] == stays
    herd.clear(group, *jobs_and_sets(herd))


def test_a_training_job_grows_shrinks_has_a_pod_replaced_and_starts_whole_again(herd: Herd) -> None:
    job, first, rest = training(herd, "again")
    pods = [*first(), *rest()]
    gang = herd.wait_running(*pods)
    path = f"{herd.path(job)}/again"

    def workers(count: int) -> list[Manifest]:
        """Have its user scale it, and return the workers that its operator would have then."""
        field = "pytorchReplicaSpecs"
        scaled = herd.lab.client.merge_patch(path, {"spec": {field: {"Worker": {"replicas": count}}}})
        return standins.replica_pods({**job, **scaled}, field, "Worker")

    (added,) = workers(3)[2:]
    herd.wait_running(*pods, *named(herd.all([added])))
    wait_charged(herd, 4)
    workers(2)
    herd.delete(added)
    wait_charged(herd, 3)

    # Its operator deletes a pod that has failed and may be tried again, and makes it anew.
    last = herd.pod(pods[-1])
    replaced = next(one for one in workers(2) if one["metadata"]["name"] == pods[-1])
    herd.delete(last)
    wait_charged(herd, 2)
    herd.put(replaced)
    assert herd.wait_running(*pods)["metadata"]["uid"] == gang["metadata"]["uid"]
    assert herd.pod(pods[-1])["spec"]["nodeName"] == last["spec"]["nodeName"]

    herd.delete(*map(herd.pod, pods))
    herd.lab.wait_used(gpus=(0, 0))
    (master,) = first()
    herd.wait_held("1 of 3 pods exist", master, of=job)
    rest()
    herd.wait_running(*pods)
    herd.clear(job)


def test_an_elastic_gang_starts_with_the_least_and_is_joined_by_who_comes(herd: Herd) -> None:
    def member(number: int) -> Manifest:
        told = {names.GANG: "elastic", names.GANG_SIZE: "4", names.GANG_MIN: "2"}
        return workloads.pod(f"e-{number}", template="one", annotations=told)

    herd.put(member(0))
    herd.wait_held("1 of 4 pods exist; the gang starts with 2", "e-0")
    herd.put(member(1))
    herd.wait_running("e-0", "e-1")
    herd.all(map(member, (2, 3)))
    herd.wait_running("e-0", "e-1", "e-2", "e-3")

    # One goes and is made anew; another goes for good.
    node = herd.pod("e-3")["spec"]["nodeName"]
    herd.delete(*map(member, (2, 3)))
    wait_charged(herd, 2)
    herd.put(member(3))
    herd.wait_running("e-0", "e-1", "e-3")
    assert herd.pod("e-3")["spec"]["nodeName"] == node
    wait_charged(herd, 3)
    herd.clear()
