"""Counting only what has changed gives the same gangs as counting all of them."""

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest

from admission.api.kubernetes.meta import Meta
from admission.api.muster.gang_requests import Action, GangRequest
from admission.api.muster.gangs import Gang
from admission.api.muster.ledger_entries import Placement, Seat
from admission.api.snapshot import Snapshot
from admission.api.values.names import GangUid, NodeName, QueueName, Uid
from admission.workloads import gangs as workloads_gangs
from admission.workloads.gang_cache import GangCache
from admission.workloads.gangs import Group
from tests import standins
from tests.builders import NOON
from tests.standins import Manifest, an_object
from tests.unit.workloads.kinds.herds import TEMPLATE, Herd, a_pod


class Town:
    """A cluster in which things come, change and go at random, in any order."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - the same for the same seed
        self.herd = Herd()
        self.placements: dict[GangUid, Placement] = {}
        self.records: dict[str, Gang] = {}
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

    @property
    def snapshot(self) -> Snapshot:
        return replace(self.herd.snapshot, gangs=dict(self.records))

    def step(self) -> None:
        match self.random.choice(("come", "come", "go", "change", "place", "leave", "blind", "record")):
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
            case "record":
                self._record()
            case "blind":
                kind = "JobSet.jobset.x-k8s.io"
                if self.herd.unwatched.pop(kind, None) is None:
                    self.herd.unwatched[kind] = "nobody granted it"
            case _:
                pass

    def _record(self) -> None:
        """Write the object of a gang, with or without a request of a user, or take it away."""
        gangs = workloads_gangs.groups(self.snapshot, self.placements)
        if not gangs:
            return
        key = self.random.choice(gangs).key
        request = GangRequest(id=str(len(self.records)), action=Action.EVICT, by="ann")
        meta = Meta(name=key.partition("/")[2])
        match self.random.choice(("request", "no request", "nothing")):
            case "nothing":
                self.records.pop(key, None)
            case choice:
                asked = request if choice == "request" else None
                self.records[key] = Gang(meta=meta, queue=QueueName("q"), size=2, request=asked)

    def _place(self) -> None:
        for group in self.random.sample(gangs := workloads_gangs.groups(self.snapshot, self.placements), len(gangs)):
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
    town, census, requests = Town(seed), GangCache(), 0
    for _ in range(120):
        town.step()
        snapshot, placements = town.snapshot, dict(town.placements)

        kept, scratch = census.groups(snapshot, placements), workloads_gangs.groups(snapshot, placements)
        assert shown(kept) == shown(scratch)
        assert shown(census.granted) == shown(one for one in scratch if one.placement and not one.is_complete)
        assert shown(census.requested) == shown(one for one in scratch if one.record and one.record.request)
        requests += len(census.requested)
    assert requests > 0
