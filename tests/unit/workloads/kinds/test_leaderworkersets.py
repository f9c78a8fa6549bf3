"""The groups of a LeaderWorkerSet: who is in one is proved by the leader's UID."""

import pytest

from admission.workloads import suspendable, topology
from admission.workloads.gang_key import UNKNOWN_SIZE
from tests import standins
from tests.standins import Manifest, an_object
from tests.unit.workloads.kinds.herds import TEMPLATE, Herd


def a_set(herd: Herd, *, size: int = 3, replicas: int = 2, annotations: dict[str, str] | None = None) -> Manifest:
    template = {"size": size, "workerTemplate": TEMPLATE}
    lws = an_object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "serve", leaderWorkerTemplate=template)
    lws["spec"]["replicas"] = replicas
    lws["metadata"]["annotations"] = annotations or {}
    return herd.put(lws)


def lead(herd: Herd, lws: Manifest) -> list[Manifest]:
    stateful_set = herd.put(standins.leaders(lws))
    return [herd.put(standins.grouped(standins_named(pod))) for pod in standins.stateful_set_pods(stateful_set)]


def standins_named(pod: Manifest) -> Manifest:
    pod["metadata"]["namespace"] = "team"
    return pod


def follow(herd: Herd, lws: Manifest, leader: Manifest) -> list[Manifest]:
    return herd.all(standins.stateful_set_pods(herd.put(standins.workers(lws, leader))))


def test_a_leader_and_its_workers_are_a_gang() -> None:
    herd = Herd()
    lws = a_set(herd)
    leaders = lead(herd, lws)
    for leader in leaders:
        follow(herd, lws, leader)

    assert herd.reported == {
        ("serve-0", "serve-0-1", "serve-0-2"): (3, 3),
        ("serve-1", "serve-1-1", "serve-1-2"): (3, 3),
    }
    assert {group.uid for group in herd.gangs} == {leader["metadata"]["uid"] for leader in leaders}
    assert {group.identity.workload and group.identity.workload.kind for group in herd.gangs} == {"LeaderWorkerSet"}


@pytest.mark.parametrize("annotations", [{}, {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}])
def test_workers_that_come_when_the_leader_runs_are_a_gang_of_their_own(annotations: dict[str, str]) -> None:
    herd = Herd()
    lws = a_set(herd, replicas=1, annotations=annotations)
    if not annotations:
        lws["spec"]["startupPolicy"] = "LeaderReady"
        herd.put(lws)
    (leader,) = lead(herd, lws)
    assert herd.reported == {("serve-0",): (1, 1)}

    follow(herd, lws, leader)

    assert herd.reported == {("serve-0",): (1, 1), ("serve-0-1", "serve-0-2"): (2, 2)}


def test_a_forged_digest_joins_nothing() -> None:
    """It is a digest of a name, and the same for the group that is made anew."""
    herd = Herd()
    lws = a_set(herd, replicas=1)
    (leader,) = lead(herd, lws)
    follow(herd, lws, leader)
    forged = standins.stateful_set_pods(standins.workers(lws, leader) | {"kind": "StatefulSet"} | forged_set())
    for pod in forged:
        pod["metadata"]["labels"] |= {"leaderworkerset.sigs.k8s.io/group-key": standins.group_key(leader)}
        herd.put(pod)

    (theirs,) = [group for group in herd.gangs if group.uid == leader["metadata"]["uid"]]

    assert {pod.meta.name for pod in theirs.pods} == {"serve-0", "serve-0-1", "serve-0-2"}
    assert [group.identity.needed for group in herd.gangs if group.uid != theirs.uid] == [UNKNOWN_SIZE]


def forged_set() -> Manifest:
    """A StatefulSet that nobody has made."""
    template = standins.labelled(TEMPLATE, {})
    template["metadata"]["annotations"] = {"leaderworkerset.sigs.k8s.io/size": "3"}
    meta = {"name": "forged", "namespace": "team", "uid": "forged"}
    return {"metadata": meta, "spec": {"replicas": 1, "template": template}}


def test_a_recreated_leader_worker_group_is_another_gang() -> None:
    herd = Herd()
    lws = a_set(herd, replicas=1)
    (leader,) = lead(herd, lws)
    before = herd.gang
    herd.take(leader)
    stateful_set = herd.put(standins.leaders(lws))
    (again,) = [herd.put(standins.grouped(standins_named(pod))) for pod in standins.stateful_set_pods(stateful_set)]

    after = herd.gang

    assert again["metadata"]["labels"] == leader["metadata"]["labels"], "its digest is the same"
    assert (before.uid, before.key) != (after.uid, after.key)


def test_a_group_of_an_earlier_revision_keeps_its_size() -> None:
    herd = Herd()
    lws = a_set(herd, size=3, replicas=1)
    (leader,) = lead(herd, lws)
    follow(herd, lws, leader)
    lws["spec"]["leaderWorkerTemplate"]["size"] = 5
    herd.put(lws)

    assert herd.reported == {("serve-0", "serve-0-1", "serve-0-2"): (3, 3)}


def test_a_plain_stateful_set_starts_pod_by_pod() -> None:
    """It makes its second pod when the first is ready."""
    herd = Herd()
    spec = {"replicas": 2, "template": TEMPLATE}
    stateful_set = herd.put({**an_object("apps/v1", "StatefulSet", "db"), "spec": spec})
    herd.all(standins.stateful_set_pods(stateful_set))

    assert sorted(herd.reported.values()) == [(1, 1), (1, 1)]


def test_a_plain_stateful_set_that_is_not_seen_holds_no_pod() -> None:
    herd = Herd()
    spec = {"replicas": 1, "template": TEMPLATE}
    stateful_set = herd.put({**an_object("apps/v1", "StatefulSet", "db"), "spec": spec})
    herd.all(standins.stateful_set_pods(stateful_set))
    herd.take(stateful_set)

    assert herd.reported == {("db-0",): (1, 1)}


@pytest.mark.parametrize(
    ("size", "policy", "subgroups"),
    [
        (4, {}, ["", "", "", ""]),
        (4, {"subGroupSize": 2}, ["0", "0", "1", "1"]),
        (5, {"subGroupSize": 2}, ["0", "0", "0", "1", "1"]),
        (5, {"subGroupSize": 2, "subGroupPolicyType": "LeaderExcluded"}, ["", "0", "0", "1", "1"]),
        (3, {"subGroupSize": 1}, ["0", "1", "2"]),
        (3, {"subGroupSize": 3}, ["0", "0", "0"]),
    ],
)
def test_planned_pods_have_the_names_and_subgroups_of_those_that_come(
    size: int, policy: Manifest, subgroups: list[str]
) -> None:
    """As `getSubGroupIndex` of the set's webhook gives them."""
    template = {"size": size, "workerTemplate": TEMPLATE, "subGroupPolicy": policy}
    lws = an_object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "serve", leaderWorkerTemplate=template)

    templates = suspendable.WITH_TEMPLATES["LeaderWorkerSet.leaderworkerset.x-k8s.io"].templates(lws)

    numbered = [(one, number) for one in templates for number in range(one.pods)]
    assert [one.pod_name(number) for one, number in numbered] == [
        "serve-0",
        *(f"serve-0-{number}" for number in range(1, size)),
    ]
    labels = [{**one.labels, **one.parts_of(number)} for one, number in numbered]
    assert [one.get("leaderworkerset.sigs.k8s.io/subgroup-index", "") for one in labels] == subgroups
    assert [one["leaderworkerset.sigs.k8s.io/worker-index"] for one in labels] == [*map(str, range(size))]


def test_a_set_of_leaders_alone_has_no_later_pods() -> None:
    herd = Herd()
    lws = a_set(herd, size=1, annotations={"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"})

    (parent,) = herd.snapshot.parents["LeaderWorkerSet.leaderworkerset.x-k8s.io"].values()

    assert lws["spec"]["leaderWorkerTemplate"]["size"] == 1
    assert (parent.roles, parent.later) == ({}, ())


@pytest.mark.parametrize(
    ("template", "followers"),
    [({}, 2), ({"leaderTemplate": TEMPLATE}, None), ({"subGroupPolicy": {"subGroupSize": 1}}, None)],
)
def test_a_leader_that_is_alone_in_a_domain_has_the_workers_that_follow_if_they_are_like_it(
    template: Manifest, followers: int | None
) -> None:
    herd = Herd()
    lws = a_set(herd, replicas=1, annotations={"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"})
    lws["spec"]["leaderWorkerTemplate"] |= template
    herd.put(lws)
    lead(herd, lws)
    # A group of an earlier revision keeps its size.
    lws["spec"]["leaderWorkerTemplate"]["size"] = 9
    herd.put(lws)

    found = topology.request(herd.gang)

    assert (found is None) is (followers is None)
    if found is not None:
        assert [(name, own.exclusive, own.followers) for name, own in found.subgroups] == [
            ("serve-0", "rack", followers)
        ]
