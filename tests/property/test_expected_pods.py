"""Expected pods that are followed from snapshot to snapshot are those that are found anew, and leave nothing behind."""

import gc
import weakref
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from admission.accounting.books import Book
from admission.api.snapshot import Snapshot, Version
from admission.api.values.names import Held, Uid
from admission.cycle.state.pending_pods import PendingPods
from admission.review import expected_pods
from admission.workloads.kinds import podgroup
from tests.builders import NAMESPACE, a_cluster
from tests.unit.cycle.suspended import HeldJobs, _claim_template

BOOK = Book()
NAMES = ("a", "b", "c")
STEPS = 20


class _Town:
    """Jobs that come and go at once, as `kubectl delete` has it, and what their pods depend on."""

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self.cluster = HeldJobs(a_cluster().queue("q", gpus=4))
        self.cluster.submit_held("anchor", queue="q")
        self._templates = self.cluster._rest.templates
        self._namespaces = self.cluster._rest.namespaces

    def happen(self) -> None:
        draw, cluster, name = self.draw, self.cluster, self.draw.choice(NAMES)
        match draw.randrange(9):
            case 0 | 1:
                spec: dict[str, Any] = {"schedulingGroup": {"podGroupName": "ring"}} if draw.random() < 0.5 else {}
                spec |= {"tolerations": "all"} if draw.random() < 0.2 else {}
                cluster.submit_held(name, queue="q", pods=draw.randint(0, 2), **spec)
            case 2 | 3:
                cluster._jobs.pop(Uid(f"job-{name}"), None)
            case 4:
                self._rest(
                    templates=draw.choice(({}, self._templates, {**self._templates, "team/x1": _claim_template(1)}))
                )
            case 5:
                self._rest(namespaces=draw.choice(({}, self._namespaces)))
            case 6:
                self._rest(parents=draw.choice(({}, {podgroup.GANGS.key: {f"{NAMESPACE}/ring": self._ring()}})))
            case 7 if name in cluster.made and Uid(f"job-{name}") in cluster._jobs:
                if draw.random() < 0.5:
                    cluster._make(name, cluster.now)
                else:
                    marks = {"muster.dev/held": draw.choice((Held.WAITING, Held.STARTED))}
                    meta = replace(cluster.job(name).meta, annotations=marks)
                    cluster.set_job(name, suspended=draw.random() < 0.5, meta=meta)
            case _:
                for pod in cluster.pods_of(name):
                    del cluster._pods[pod.meta.uid]

    def _rest(self, **parts: Any) -> None:
        self.cluster._rest = replace(self.cluster._rest, **parts)

    def _ring(self) -> Any:
        claim = {"name": self.draw.choice(("gpus", "other")), "resourceClaimTemplateName": "x1"}
        spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": [claim]}
        meta = {"name": "ring", "namespace": NAMESPACE, "uid": "group-ring"}
        return podgroup.GANGS.decode({"metadata": meta, "spec": spec})


@given(seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=20)
def test_expected_pods_that_are_followed_are_those_found_anew(seed: int) -> None:
    town, pending = _Town(Random(seed)), PendingPods()  # noqa: S311 - a seed for choices
    for _ in range(STEPS):
        town.happen()
        snapshot = town.cluster.snapshot()
        waits_for_namespace = not snapshot.namespaces  # what was found before stays until it is seen
        found, new = pending.add_to(snapshot, BOOK), PendingPods()
        anew = new.add_to(snapshot, BOOK)

        if not waits_for_namespace:
            assert found.pods == anew.pods
            assert found.claims == anew.claims
            assert pending.problems == new.problems
        assert {one.meta.uid for one in pending.loose} == {one.meta.uid for one in new.loose}
        kept = (pending._unsettled, pending._parts, pending._shown, pending._loose, pending._rivals)
        assert set[Uid]().union(*kept) <= pending._held.workloads.keys()


def test_of_claims_of_one_name_the_same_one_counts_in_every_process_and_none_is_remembered() -> None:
    cluster, pending = HeldJobs(a_cluster().queue("q", gpus=4)), PendingPods()
    cluster.submit_held("train", queue="q")
    jobs = {}
    for number in range(6):
        job = cluster.job("train")
        jobs[Uid(f"job-{number}")] = replace(job, meta=replace(job.meta, uid=Uid(f"job-{number}")))
    snapshot = replace(cluster.snapshot(), jobs=jobs)

    (claim,) = pending.add_to(snapshot, BOOK).claims.values()
    assert "job-5" in claim.meta.uid
    assert len(pending._rivals) == 6

    for left in (("job-2", "job-4"), ("job-2",)):
        found = pending.add_to(replace(snapshot, jobs={Uid(uid): jobs[Uid(uid)] for uid in left}), BOOK)
        (claim,) = found.claims.values()
        assert left[-1] in claim.meta.uid
    assert not pending._rivals


def test_while_no_workload_is_held_no_snapshot_is_kept() -> None:
    cluster, pending = HeldJobs(a_cluster().queue("q", gpus=4)), PendingPods()
    cluster.submit_held("train", queue="q")
    with_pods = replace(cluster.snapshot(), pods=Version())
    assert pending.add_to(with_pods, BOOK).pods

    old = weakref.ref(with_pods.pods)
    assert not pending.add_to(Snapshot(), BOOK).pods
    del with_pods
    gc.collect()
    assert old() is None


def test_after_an_exception_what_is_expected_is_found_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    cluster, pending = HeldJobs(a_cluster().queue("q", gpus=4)), PendingPods()
    for name in NAMES:
        cluster.submit_held(name, queue="q")
        with monkeypatch.context() as broken:
            broken.setattr(expected_pods, "claims_of", fail)
            with pytest.raises(MemoryError):
                pending.add_to(cluster.snapshot(), BOOK)
    cluster._jobs.pop(Uid("job-a"))
    snapshot = cluster.snapshot()

    assert pending.add_to(snapshot, BOOK).claims == PendingPods().add_to(snapshot, BOOK).claims
