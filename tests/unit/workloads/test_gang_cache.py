"""Counting only what has changed gives the same gangs as counting all of them."""

from dataclasses import replace
from datetime import datetime, timedelta

from admission.api.kubernetes.meta import Meta
from admission.api.muster.queues import PriorityClass, Queue
from admission.api.values import names
from admission.api.values.names import QueueName, Uid
from admission.workloads import gangs as workloads_gangs
from admission.workloads.gang_cache import GangCache, QueuePosition
from admission.workloads.gangs import Group
from tests import standins
from tests.builders import NOON, a_cluster
from tests.standins import an_object
from tests.unit.workloads.kinds.herds import TEMPLATE, Herd, a_pod


def test_a_gang_of_which_nothing_changed_is_the_same_object() -> None:
    herd, census = Herd(), GangCache()
    spec = {"parallelism": 2, "template": TEMPLATE}
    job = herd.put({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec})
    herd.all(standins.job_pods(job))
    (before,) = census.groups(herd.snapshot, {})

    herd.put(an_object("jobset.x-k8s.io/v1alpha2", "JobSet", "other", replicatedJobs=[]))
    herd.put(a_pod("other"))

    assert any(group is before for group in census.groups(herd.snapshot, {}))


def test_a_gang_has_the_priority_of_its_class_as_its_queue_says_now() -> None:
    base = a_cluster().pod("a", labels={names.PRIORITY_CLASS: "urgent"}).pod("b").snapshot()
    census = GangCache()

    def priorities(*classes: PriorityClass) -> dict[str, int]:
        queue = Queue(meta=Meta(name="q"), priority_classes=classes)
        snapshot = replace(base, queues={QueueName("q"): queue})
        found = census.groups(snapshot, {})
        assert {one.uid: one.priority for one in workloads_gangs.groups(snapshot, {})} == {
            one.uid: one.priority for one in found
        }
        return {group.pods[0].meta.name: group.priority for group in found}

    assert priorities() == {"a": 0, "b": 0}
    assert priorities(PriorityClass(name="urgent", value=7)) == {"a": 7, "b": 0}
    assert priorities(PriorityClass(name="urgent", value=-9)) == {"a": -9, "b": 0}


def test_a_class_that_is_given_to_a_pod_that_waits_does_not_count_for_what_was_let_in() -> None:
    group = {names.GANG: "one", names.GANG_SIZE: "1"}
    urgent = {**group, names.PRIORITY_CLASS: "urgent"}
    queue = Queue(meta=Meta(name="q"), priority_classes=(PriorityClass(name="urgent", value=7),))

    waits = a_cluster().pod("a", labels=group).pod("b", labels=urgent).snapshot()
    waits = replace(waits, queues={QueueName("q"): queue})
    opened = replace(waits.pods[Uid("pod-a")], gates=())

    (before,) = workloads_gangs.groups(waits, {})
    (after,) = workloads_gangs.groups(replace(waits, pods={**waits.pods, opened.meta.uid: opened}), {})

    assert (before.priority, after.priority) == (7, 0)


def test_the_gang_cache_forgets_deleted_gangs() -> None:
    herd, census = Herd(), GangCache()
    for number in range(3):
        pod = herd.put(a_pod(f"pod-{number}"))
        census.groups(herd.snapshot, {})
        census.groups(herd.take(pod).snapshot, {})

    kept = {name: getattr(census, name) for name in GangCache.__slots__}
    assert [name for name, value in kept.items() if isinstance(value, dict) and value] == []


def _kept_place(*, running: bool, keep: bool = True) -> tuple[Group, datetime]:
    """Return a gang of which one pod may run, and another waits, whose line kept an earlier place; and that place."""
    herd, census = Herd(), GangCache()
    template = {**TEMPLATE, "metadata": {"labels": {names.QUEUE: "q", names.GANG_MIN: "1"}}}
    entry = {"name": "a", "replicas": 1, "template": {"spec": {"parallelism": 2, "template": template}}}
    jobset = herd.put(an_object("jobset.x-k8s.io/v1alpha2", "JobSet", "js", replicatedJobs=[entry]))
    (job,) = herd.all(standins.jobset_jobs(jobset))
    first, second = standins.job_pods(job)
    herd.put({**first, "spec": {**first["spec"], "schedulingGates": []}} if running else first)
    herd.put(second)
    since = NOON - timedelta(hours=1)
    if keep:
        census.keep_position(herd.gang.identity.position_key, QueuePosition(since=since, evicted_at=NOON))
    (group,) = census.groups(herd.snapshot, {})
    return group, since


def test_a_recreated_gang_keeps_the_waiting_time_of_the_gang_before() -> None:
    group, since = _kept_place(running=False)

    assert group.first_queued == group.queued_since == since


def test_pods_that_join_a_running_gang_wait_since_their_own_creation() -> None:
    group, since = _kept_place(running=True)
    fresh, _ = _kept_place(running=True, keep=False)

    assert group.first_queued == since
    assert group.queued_since == fresh.queued_since > since
