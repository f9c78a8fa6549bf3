"""Which pods belong together."""

from dataclasses import replace
from datetime import timedelta

import pytest

from admission.api.kubernetes import jobs
from admission.api.muster.ledger_entries import Placement, Seat
from admission.api.values import names
from admission.api.values.names import GangUid, NodeName, QueueName, Uid
from admission.workloads import gang_key, gangs, suspendable
from admission.workloads.gangs import Group
from tests.builders import NOON, a_cluster, let_in, pod_of, with_pods


def test_the_pods_of_a_job_are_one_gang_of_its_parallelism() -> None:
    snapshot = a_cluster().job("train", queue="q", pods=3).snapshot()

    (group,) = gangs.groups(snapshot, {})

    assert group.uid == "job-train"
    assert group.identity.size == 3
    assert [pod.meta.name for pod in group.waiting] == ["train-0", "train-1", "train-2"]


def test_a_job_towards_its_end_needs_only_the_pods_that_are_left() -> None:
    snapshot = a_cluster().job("train", queue="q", pods=4, made=1).snapshot()
    job = replace(snapshot.jobs[Uid("job-train")], succeeded=3)

    (group,) = gangs.groups(replace(snapshot, jobs={job.meta.uid: job}), {})

    assert (group.identity.size, group.identity.needed) == (4, 1)


FAILED = {
    "one": ("1", 3),
    "several": ("0,2-3", 1),
    "none": ("", 4),
    "all": ("0-3", 1),
    "what is no list of indexes": ("x,3-,-,2-1", 4),
}


@pytest.mark.parametrize(("indexes", "needed"), FAILED.values(), ids=FAILED)
def test_an_index_that_has_failed_for_good_is_not_waited_for(indexes: str, needed: int) -> None:
    """As `backoffLimitPerIndex` says: the Job's controller makes no pod for it any more."""
    snapshot = a_cluster().job("train", queue="q", pods=4, made=1).snapshot()
    uid = Uid("job-train")
    meta = {"name": "train", "namespace": "team", "uid": uid}
    spec = {"parallelism": 4, "completions": 4, "completionMode": "Indexed", "backoffLimitPerIndex": 1}
    job = jobs.decode({"metadata": meta, "spec": spec, "status": {"failedIndexes": indexes}})

    (group,) = gangs.groups(replace(snapshot, jobs={uid: job}), {})
    (template,) = suspendable.job_templates(job)

    assert (group.identity.size, group.identity.needed) == (4, needed)
    assert max(template.pods, 1) == needed


def test_a_job_that_is_done_in_part_makes_pods_of_the_indexes_that_are_left() -> None:
    """Its anti-affinity may be about one index that is done, as of a leader."""
    spec = {"parallelism": 3, "completions": 8, "completionMode": "Indexed", "backoffLimitPerIndex": 1}
    status = {"succeeded": 3, "completedIndexes": "4,0-1", "failedIndexes": "3"}
    job = jobs.decode({"metadata": {"name": "train", "namespace": "team", "uid": "u"}, "spec": spec, "status": status})

    (template,) = suspendable.job_templates(job)

    assert [template.parts_of(number)[jobs.INDEX] for number in range(template.pods)] == ["2", "5", "6"]
    assert [template.pod_name(number) for number in range(template.pods)] == ["train-2", "train-5", "train-6"]


def test_while_a_job_is_not_seen_its_gang_cannot_be_complete() -> None:
    snapshot = replace(a_cluster().job("train", queue="q", pods=3).snapshot(), jobs={})

    (group,) = gangs.groups(snapshot, {})

    assert group.identity.needed > gang_key.LARGEST_SIZE


def test_a_job_made_again_under_its_name_is_another_gang() -> None:
    assert gang_key.unique_name("train", "uid-1") != gang_key.unique_name("train", "uid-2")
    assert gang_key.unique_name("train", "uid-1").startswith("train-")
    assert gang_key.unique_name("train", "") == "train"


def test_a_label_cannot_join_the_gang_of_a_job() -> None:
    snapshot = a_cluster().job("train", queue="q", pods=2).pod("thief", labels={names.GANG: "job-train"}).snapshot()

    assert {group.uid for group in gangs.groups(snapshot, {})} == {"job-train", "team/job-train"}


def test_pods_that_name_a_gang_are_together() -> None:
    labels = {names.GANG: "pair"}
    size = {names.GANG_SIZE: "2"}
    snapshot = (
        a_cluster().pod("a", labels=labels, annotations=size).pod("b", labels=labels, annotations=size).snapshot()
    )

    (group,) = gangs.groups(snapshot, {})

    assert (group.uid, group.identity.size, len(group.waiting)) == ("team/pair", 2, 2)


def test_a_lone_pod_is_a_gang_of_one() -> None:
    (group,) = gangs.groups(a_cluster().pod("alone").snapshot(), {})

    assert (group.uid, group.identity.size) == ("pod-alone", 1)
    assert group.identity.name.startswith("alone-"), "a Job or a named gang of that name is another"


def test_pods_outside_queues_are_in_no_gang() -> None:
    assert gangs.groups(a_cluster().pod("free", queue="").snapshot(), {}) == []


def test_pods_that_end_or_are_deleted_are_not_waiting() -> None:
    snapshot = a_cluster().job("train", queue="q", pods=3).snapshot()
    ended = replace(let_in(pod_of(snapshot, "train-0")), phase="Succeeded")
    doomed = pod_of(snapshot, "train-1")
    doomed = replace(doomed, meta=replace(doomed.meta, deleted=NOON))

    (group,) = gangs.groups(with_pods(snapshot, ended, doomed), {})

    assert [pod.meta.name for pod in group.pods] == ["train-2"]
    assert [pod.meta.name for pod in group.ended] == ["train-0"]


def test_a_seat_makes_a_gated_pod_half_open_rather_than_waiting() -> None:
    snapshot = a_cluster().job("train", queue="q", pods=2).snapshot()
    seat = Seat(pod_uid=Uid("pod-train-0"), pod="team/train-0", node=NodeName("a"))
    placement = Placement(
        gang_uid=GangUid("job-train"),
        gang="team/train",
        queue=QueueName("q"),
        reserved_at=NOON,
        seats={seat.pod_uid: seat},
    )

    (group,) = gangs.groups(snapshot, {placement.gang_uid: placement})

    assert [pod.meta.name for pod in group.granted_pods] == ["train-0"]
    assert [pod.meta.name for pod in group.waiting] == ["train-1"]
    assert group.started


def test_holdings_left_after_an_eviction_do_not_make_the_gang_a_started_one() -> None:
    """After an eviction the gang starts whole again, though old claims are still being deallocated."""
    snapshot = a_cluster().job("train", queue="q", pods=2).snapshot()
    placement = Placement(
        gang_uid=GangUid("job-train"), gang="team/train", queue=QueueName("q"), reserved_at=NOON - timedelta(minutes=5)
    )

    (group,) = gangs.groups(snapshot, {placement.gang_uid: placement})

    assert not group.started


def test_a_pods_gang_size_goes_before_its_jobs() -> None:
    snapshot = a_cluster().job("train", queue="q", pods=4, annotations={names.GANG_SIZE: "2"}).snapshot()

    (group,) = gangs.groups(snapshot, {})

    assert group.identity.size == 2


def placed(group: Group) -> Placement:
    seats = {pod.meta.uid: Seat(pod_uid=pod.meta.uid, pod=pod.meta.key, node=NodeName("a")) for pod in group.pods}
    return Placement(gang_uid=group.uid, gang=group.key, queue=QueueName("q"), reserved_at=NOON, seats=seats)


def test_a_pod_with_a_seat_stays_in_its_gang_whatever_its_labels_and_owners_become() -> None:
    """Labels may be written while no webhook is there, and a workload may be deleted without its pods."""
    snapshot = a_cluster().job("train", queue="q", pods=2).snapshot()
    (group,) = gangs.groups(snapshot, {})
    placements = {group.uid: placed(group)}
    pod = pod_of(snapshot, "train-0")
    labels = {**pod.meta.labels, names.GANG: "other", names.GANG_SIZE: "1"}
    relabelled = with_pods(snapshot, replace(pod, meta=replace(pod.meta, labels=labels)))
    orphans = [replace(pod, meta=replace(pod.meta, owners=())) for pod in snapshot.pods.values()]

    for changed in (relabelled, replace(snapshot, jobs={}), replace(with_pods(snapshot, *orphans), jobs={})):
        (after,) = gangs.groups(changed, placements)
        assert (after.uid, after.key, len(after.pods)) == (group.uid, group.key, 2)
        assert after.started


def test_the_first_pod_that_still_says_so_tells_what_the_gang_is() -> None:
    """Not one whose labels have changed since it got its place, and none of those that come later."""
    snapshot = a_cluster().job("train", queue="q", pods=3, annotations={names.GANG_SIZE: "3"}).snapshot()
    (group,) = gangs.groups(snapshot, {})
    relabelled, first, second = (pod_of(snapshot, f"train-{at}") for at in range(3))
    labels = {**relabelled.meta.labels, names.GANG: "other"}
    changed = with_pods(
        snapshot,
        replace(relabelled, meta=replace(relabelled.meta, labels=labels)),
        replace(second, meta=replace(second.meta, annotations={**second.meta.annotations, names.GANG_SIZE: "7"})),
    )

    (after,) = gangs.groups(changed, {group.uid: placed(group)})

    assert (after.uid, len(after.pods), after.identity.size) == (group.uid, 3, 3)
    assert first in after.pods


def test_a_pod_without_a_seat_is_in_the_gang_of_its_labels_and_owners() -> None:
    snapshot = a_cluster().job("train", queue="q", pods=2).snapshot()
    (group,) = gangs.groups(snapshot, {})
    placement = replace(placed(group), gang_uid=GangUid("earlier"), gang="team/earlier", seats={})

    (after,) = gangs.groups(snapshot, {placement.gang_uid: placement})

    assert after.uid == group.uid


def test_no_pod_is_of_a_job_of_another_namespace() -> None:
    """The API server takes any UID of an owner; the garbage collector removes such a pod only later."""
    snapshot = a_cluster().job("train", queue="q", pods=2).snapshot()
    thief = pod_of(snapshot, "train-0")
    thief = replace(thief, meta=replace(thief.meta, name="thief", namespace="theirs", uid=Uid("pod-thief")))

    found = {group.uid: group for group in gangs.groups(with_pods(snapshot, thief), {})}

    assert found.keys() == {"job-train", "pod-thief"}
    assert [pod.meta.name for pod in found[GangUid("job-train")].pods] == ["train-0", "train-1"]
    assert found[GangUid("pod-thief")].identity.namespace == "theirs"


def test_no_pod_joins_a_named_gang_by_its_owner() -> None:
    labels = {names.GANG: "pair"}
    snapshot = a_cluster().pod("a", labels=labels).pod("thief", owner="team/pair", job="pair").snapshot()

    assert {group.uid for group in gangs.groups(snapshot, {})} == {"team/pair", "pod-thief"}


def test_a_declared_size_of_more_pods_than_a_job_has_is_waited_for_until_some_have_succeeded() -> None:
    def needed(succeeded: int) -> int:
        snapshot = a_cluster().job("train", queue="q", pods=2, annotations={names.GANG_SIZE: "4"}).snapshot()
        jobs = {uid: replace(job, succeeded=succeeded) for uid, job in snapshot.jobs.items()}
        (group,) = gangs.groups(replace(snapshot, jobs=jobs), {})
        return group.identity.needed

    assert [needed(succeeded) for succeeded in (0, 1)] == [4, 1]
