"""PodGroups, and the labels and annotations of other systems."""

import json
from typing import Any

import pytest

from admission.api.kubernetes.owners import UNSERVED
from admission.api.values import names
from admission.workloads import gang_key
from tests.standins import Manifest, an_object
from tests.unit.workloads.kinds.herds import Herd, a_pod

POLICY = {"schedulingPolicy": {"gang": {"minCount": 2}}}

VERSIONS = {"1.36": "scheduling.k8s.io/v1alpha2", "1.37": "scheduling.k8s.io/v1beta1"}


@pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS)
def test_the_pods_that_name_a_pod_group_are_a_gang_of_its_size(version: str) -> None:
    herd = Herd()
    group = herd.put(an_object(version, "PodGroup", "pair", **POLICY))
    for name in ("a", "b"):
        herd.put(a_pod(name, group="pair"))

    assert (herd.gang.uid, herd.reported) == (group["metadata"]["uid"], {("a", "b"): (2, 2)})


def test_pods_of_a_pod_group_with_the_basic_policy_start_one_by_one() -> None:
    herd = Herd()
    herd.put(an_object(VERSIONS["1.37"], "PodGroup", "pair", schedulingPolicy={"basic": {}}))
    herd.put(a_pod("a", group="pair"))

    assert herd.reported == {("a",): (1, 1)}


def test_a_pod_group_that_is_made_again_is_another_gang() -> None:
    herd = Herd()
    herd.put(an_object(VERSIONS["1.37"], "PodGroup", "pair", **POLICY))
    herd.put(a_pod("a", group="pair"))
    before = herd.gang.uid
    herd.put(an_object(VERSIONS["1.37"], "PodGroup", "pair", **POLICY))

    assert herd.gang.uid != before


def test_pods_wait_for_a_pod_group_that_is_not_there() -> None:
    herd = Herd()
    herd.put(a_pod("a", group="pair"))

    assert (
        "PodGroup pair (scheduling.k8s.io), which the pods name, is not there; create it" in herd.gang.identity.unknown
    )


def test_a_gang_of_an_unwatched_pod_group_says_why_the_group_is_not_seen() -> None:
    herd = Herd()
    herd.unwatched["PodGroup.scheduling.k8s.io"] = "the API server does not serve it"
    herd.put(a_pod("a", group="pair"))

    assert "cannot see objects of kind PodGroup.scheduling.k8s.io: the API server" in herd.gang.identity.unknown


OTHERS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "Volcano": ("scheduling.volcano.sh/v1beta1", {}, {"scheduling.k8s.io/group-name": "pair"}),
    "Volcano's own key": ("scheduling.volcano.sh/v1beta1", {}, {"scheduling.volcano.sh/group-name": "pair"}),
    "coscheduling": ("scheduling.x-k8s.io/v1alpha1", {"scheduling.x-k8s.io/pod-group": "pair"}, {}),
    "KAI": ("scheduling.run.ai/v2alpha2", {}, {"pod-group-name": "pair"}),
}


@pytest.mark.parametrize(("version", "labels", "annotations"), OTHERS.values(), ids=OTHERS)
def test_pod_groups_of_other_systems_are_read(version: str, labels: Manifest, annotations: Manifest) -> None:
    herd = Herd()
    group = herd.put(an_object(version, "PodGroup", "pair", minMember=2))
    for name in ("a", "b"):
        herd.put(a_pod(name, labels=labels, **annotations))

    assert (herd.gang.uid, herd.reported) == (group["metadata"]["uid"], {("a", "b"): (2, 2)})


KUEUE = "kueue.x-k8s.io/pod-group-name"
COUNT = "kueue.x-k8s.io/pod-group-total-count"
TASKS = '[{"name": "a", "minMember": 1}, {"name": "b", "minMember": 2}]'
TASK_GROUPS = {"yunikorn.apache.org/task-group-name": "a", "yunikorn.apache.org/task-groups": TASKS}
LABELLED: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "Kueue": ({KUEUE: "trio"}, {COUNT: "3"}),
    "Kueue, behind a gate": ({}, {KUEUE: "trio", COUNT: "3"}),
    "YuniKorn": ({"yunikorn.apache.org/app-id": "trio"}, TASK_GROUPS),
    "YuniKorn before": ({"applicationId": "trio"}, TASK_GROUPS),
    "Koordinator": (
        {},
        {"gang.scheduling.koordinator.sh/name": "trio", "gang.scheduling.koordinator.sh/min-available": "3"},
    ),
    "Armada": ({}, {"armadaproject.io/gangId": "trio", "armadaproject.io/gangCardinality": "3"}),
}


@pytest.mark.parametrize(("labels", "annotations"), LABELLED.values(), ids=LABELLED)
def test_groups_that_pods_size_themselves_are_gangs(labels: Manifest, annotations: Manifest) -> None:
    herd = Herd()
    for name in ("a", "b", "c"):
        herd.put(a_pod(name, labels=labels, **annotations))

    assert herd.reported == {("a", "b", "c"): (3, 3)}
    assert herd.gang.identity.name.startswith("trio-"), "a muster.dev/gang of that name is another"


def test_a_kueue_group_and_a_named_gang_of_one_name_are_two_gangs() -> None:
    herd = Herd()
    herd.put(a_pod("a", labels={KUEUE: "pair"}, **{COUNT: "2"}))
    herd.put(a_pod("b", labels={names.GANG: "pair", names.GANG_SIZE: "2"}))

    assert herd.reported == {("a",): (2, 2), ("b",): (2, 2)}
    assert len({group.key for group in herd.gangs}) == 2


BAD = {"no number": "three", "0": "0", "too long": "9" * 5000, "another script": "٣"}


@pytest.mark.parametrize("size", BAD.values(), ids=BAD)
def test_a_kueue_group_without_a_size_waits_and_names_the_missing_annotation(size: str) -> None:
    herd = Herd()
    herd.put(a_pod("a", labels={KUEUE: "pair"}, **{COUNT: size}))

    assert f"group pair of Kueue is: pod a has no {COUNT} that can be read" in herd.gang.identity.unknown


def test_a_group_without_any_size_is_no_gang() -> None:
    herd = Herd()
    for name in ("a", "b"):
        herd.put(a_pod(name, labels={KUEUE: "pair"}))

    assert sorted(herd.reported.values()) == [(1, 1), (1, 1)]


@pytest.mark.parametrize(("version", "labels", "annotations"), OTHERS.values(), ids=OTHERS)
def test_a_pod_group_name_of_another_system_is_ignored_where_its_kind_is_not_served(
    version: str, labels: Manifest, annotations: Manifest
) -> None:
    herd = Herd()
    group = version.rpartition("/")[0]
    herd.unwatched[f"PodGroup.{group}"] = UNSERVED
    herd.put(a_pod("a", labels=labels, **annotations))
    assert herd.reported == {("a",): (1, 1)}

    herd.unwatched[f"PodGroup.{group}"] = "list podgroups: forbidden (403)"
    assert "forbidden" in herd.gang.identity.unknown

    herd.unwatched[f"PodGroup.{group}"] = UNSERVED
    for name in ("a", "b"):
        herd.put(a_pod(name, labels=labels, **annotations, **{names.GANG_SIZE: "2"}))
    assert [len(found.pods) for found in herd.gangs if found.identity.needed == 2] == [2]


HUGE = json.dumps([{"minMember": 10**6}])


@pytest.mark.parametrize(
    "text",
    [
        HUGE,
        HUGE.replace("1", "9" * 4300),
        "[",
        "{}",
        "[1]",
        '[{"minMember": "x"}]',
        '[{"minMember": true}]',
        "[" * 9999,
    ],
)
def test_task_groups_that_cannot_be_read_are_no_size(text: str) -> None:
    herd = Herd()
    groups = TASK_GROUPS | {"yunikorn.apache.org/task-groups": text}
    herd.put(a_pod("a", labels={"yunikorn.apache.org/app-id": "app"}, **groups))

    assert herd.gang.identity.needed > 10_000


def test_an_application_of_yunikorn_without_task_groups_is_no_gang() -> None:
    herd = Herd()
    for name in ("a", "b"):
        herd.put(a_pod(name, labels={"yunikorn.apache.org/app-id": "app"}))

    assert sorted(herd.reported.values()) == [(1, 1), (1, 1)]


def test_a_gang_size_of_muster_goes_before_a_group_size_of_another_system() -> None:
    herd = Herd()
    herd.put(a_pod("a", labels={KUEUE: "pair"}, **{COUNT: "3", names.GANG_SIZE: "2"}))

    assert (herd.gang.identity.needed, herd.gang.identity.size_source) == (2, "muster.dev/gang-size of its pods")


ODD = {"long": "x" * 5000, "capitals": "My_Group", "a path": "../../etc", "no text": "\x00", "another script": "ф"}


@pytest.mark.parametrize("name", ODD.values(), ids=ODD)
@pytest.mark.parametrize("key", ["armadaproject.io/gangId", "scheduling.k8s.io/group-name"])
def test_any_group_name_makes_a_gang_uid_and_name_that_ledger_and_api_server_accept(key: str, name: str) -> None:
    herd = Herd()
    herd.put(a_pod("a", **{key: name, "armadaproject.io/gangCardinality": "1"}))

    identity = herd.gang.identity

    assert len(identity.uid) <= gang_key.LONGEST_UID
    assert (identity.uid.isascii(), identity.uid.isprintable()) == (True, True)
    assert gang_key.OBJECT_NAME.fullmatch(identity.name)
    assert len(identity.name) <= 253


def test_groups_of_different_names_are_never_the_same() -> None:
    herd = Herd()
    for name in ("x" * 4999, "x" * 5000):
        herd.put(a_pod(f"a-{len(name)}", **{"armadaproject.io/gangId": name, "armadaproject.io/gangCardinality": "1"}))

    assert len({group.uid for group in herd.gangs}) == len({group.key for group in herd.gangs}) == 2
