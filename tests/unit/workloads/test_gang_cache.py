"""Counting only what has changed gives the same gangs as counting all of them."""

import random
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from admission.api.kubernetes.meta import Meta
from admission.api.muster.ledger_entries import Placement, Seat
from admission.api.muster.queues import PriorityClass, Queue
from admission.api.values import names
from admission.api.values.names import GangUid, NodeName, QueueName, Uid
from admission.workloads import gangs as workloads_gangs
from admission.workloads.gang_cache import GangCache, QueuePosition
from admission.workloads.gangs import Group
from tests import standins
from tests.builders import NOON, a_cluster
from tests.standins import Manifest
from tests.unit.workloads.kinds.herds import TEMPLATE, Herd, a_pod, an_object


class Town:
    """A cluster in which things come, change and go at random, in any order."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - the same for the same seed
        self.herd = Herd()
        self.placements: dict[GangUid, Placement] = {}
        self._later: list[Manifest] = []
        self._there: list[Manifest] = []
        self._fill()

    def _fill(self) -> None:
        """What is made by one herd comes to the other in another order."""
        source = Herd()
        entry = {"name": "a", "replicas": 2, "template": {"spec": {"parallelism": 2, "template": TEMPLATE}}}
        jobset = source.put(an_object("jobset.x-k8s.io/v1alpha2", "JobSet", "js", replicatedJobs=[entry]))
        jobs = source.all(standins.jobset_jobs(jobset))
        found = [jobset, *jobs, *(pod for job in jobs for pod in source.all(standins.job_pods(job)))]
        template = {"size": 2, "workerTemplate": TEMPLATE}
        lws = source.put(
            an_object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "lws", leaderWorkerTemplate=template)
        )
        leaders = source.put(standins.leaders(lws))
        (leader,) = source.all(standins.stateful_set_pods(leaders))
        workers = source.put(standins.workers(lws, leader))
        found += [lws, leaders, leader, workers, *source.all(standins.stateful_set_pods(workers))]
        policy = {"gang": {"minCount": 2}}
        found += [source.put(an_object("scheduling.k8s.io/v1beta1", "PodGroup", "pair", schedulingPolicy=policy))]
        found += [source.put(a_pod(name, group="pair")) for name in ("a", "b")]
        found += [source.put(a_pod("alone"))]
        self._later = found
        self.random.shuffle(self._later)

    def step(self) -> None:
        match self.random.choice(("come", "come", "go", "change", "place", "leave", "blind")):
            case "come" if self._later:
                self._there.append(self.herd.put(self._later.pop()))
            case "go" if self._there:
                removed = self._there.pop(self.random.randrange(len(self._there)))
                self.herd.take(removed)
                self._later.append(removed)
            case "change" if self._there:
                self.herd.put(self.random.choice(self._there), phase=self.random.choice(("Running", "Pending")))
            case "place":
                self._place()
            case "leave" if self.placements:
                del self.placements[self.random.choice(list(self.placements))]
            case "blind":
                kind = "JobSet.jobset.x-k8s.io"
                if self.herd.unwatched.pop(kind, None) is None:
                    self.herd.unwatched[kind] = "nobody granted it"
            case _:
                pass

    def _place(self) -> None:
        for group in self.random.sample(
            gangs := workloads_gangs.groups(self.herd.snapshot, self.placements), len(gangs)
        ):
            if group.placement is None and group.pods:
                seats = (
                    Seat(pod_uid=pod.meta.uid, pod=pod.meta.key, node=NodeName("n"))
                    for pod in group.pods
                    if not any(pod.meta.uid in placement.seats for placement in self.placements.values())
                )
                self.placements[group.uid] = Placement(
                    gang_uid=group.uid,
                    gang=group.key,
                    queue=QueueName("q"),
                    reserved_at=NOON,
                    seats={seat.pod_uid: seat for seat in seats},
                )
                return


def shown(groups: Iterable[Group]) -> dict[GangUid, tuple[frozenset[Uid], frozenset[Uid], int, str]]:
    return {
        group.uid: (
            frozenset(pod.meta.uid for pod in group.pods),
            frozenset(pod.meta.uid for pod in group.ended),
            group.identity.needed,
            group.identity.unknown,
        )
        for group in groups
    }


@pytest.mark.parametrize("seed", range(20))
def test_gangs_updated_change_by_change_equal_gangs_grouped_from_scratch(seed: int) -> None:
    town, census = Town(seed), GangCache()
    for _ in range(120):
        town.step()
        snapshot, placements = town.herd.snapshot, dict(town.placements)

        assert shown(census.groups(snapshot, placements)) == shown(workloads_gangs.groups(snapshot, placements))


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
