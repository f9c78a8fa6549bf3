"""Where volumes let a pod go, case by case: what random worlds seldom have."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes import nodes, pods
from admission.api.kubernetes.pods import Pod
from admission.api.scheduling.pod_volumes import Disk
from admission.api.storage import csi, persistent_volumes
from admission.api.storage.assumed_volumes import AssumedVolumes
from admission.api.storage.persistent_volumes import (
    BETA_REGION,
    BETA_ZONE,
    NO_PROVISIONER,
    REGION,
    ZONE,
    PersistentVolume,
)
from admission.api.storage.storage import Storage
from admission.api.values import names
from admission.api.values.names import NodeName, Uid
from admission.filters import node_volume_limits, pod_claims, volume_binding
from admission.filters.placed_pods import PlacedPod, PlacedPods
from admission.filters.pod_rules import PodRules
from admission.filters.refusal import Rule

Json = dict[str, Any]
PLUGIN, TOPOLOGY = "kubernetes.io/gce-pd", "topology.gke.io/zone"


def a_pod(name: str, *volumes: Json) -> Pod:
    named = [{"name": f"v{at}", **one} for at, one in enumerate(volumes)]
    return pods.decode({"metadata": {"name": name, "namespace": "team", "uid": name}, "spec": {"volumes": named}})


def claimed(name: str = "data") -> Json:
    return {"persistentVolumeClaim": {"claimName": name}}


def storage(volume: Json, *, labels: dict[str, str] | None = None, migrated: str = "", **rest: Any) -> Storage:
    """Return a claim that is bound to a volume, and the CSINode of a node."""
    meta = {"name": "data", "namespace": "team", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    notes = {"storage.alpha.kubernetes.io/migrated-plugins": migrated}
    return Storage(
        claims={"team/data": persistent_volumes.decode_claim({"metadata": meta, "spec": {"volumeName": "pv"}})},
        volumes={
            "pv": persistent_volumes.decode_volume({"metadata": {"name": "pv", "labels": labels}, "spec": volume})
        },
        nodes={"n": csi.decode_csi_node({"metadata": {"name": "n", "annotations": notes}, "spec": {"drivers": []}})},
        **rest,
    )


def only_in(**labels: str) -> Json:
    term = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": term}]}}}


def why(pod: Pod, found: Storage, labels: dict[str, str], *there: Pod, nominated: Pod | None = None) -> str | None:
    """Return what keeps a pod off the node n, which has these labels and pods. nominated: for which n is kept."""
    node = nodes.decode({"metadata": {"name": "n", "labels": labels}})
    placed = PlacedPods(storage=found).added((NodeName("n"), one.meta.uid, PlacedPod.of(one)) for one in there)
    placed = placed.with_nominated({node.name: (nominated,)} if nominated is not None else {})
    refusal = PodRules(pod, placed, {node.name: node}).refuses(node)
    return None if refusal is None else refusal.title


@pytest.mark.parametrize(
    ("affinity", "labels", "node", "fits"),
    [
        ({ZONE: "z"}, {}, {TOPOLOGY: "z"}, True),
        ({ZONE: "z"}, {}, {ZONE: "z"}, False),
        ({BETA_ZONE: "z", BETA_REGION: "r"}, {}, {TOPOLOGY: "z", REGION: "r"}, True),
        ({BETA_ZONE: "z", BETA_REGION: "r"}, {}, {TOPOLOGY: "z", BETA_REGION: "r"}, False),
        ({}, {ZONE: "y__z"}, {TOPOLOGY: "z", ZONE: "z"}, True),
        ({}, {ZONE: "y__z"}, {ZONE: "z"}, False),
        ({"rack": "k"}, {BETA_ZONE: "z"}, {TOPOLOGY: "z", "rack": "k", ZONE: "z"}, True),
        ({"rack": "k"}, {BETA_ZONE: "z"}, {TOPOLOGY: "x", "rack": "k", ZONE: "z"}, False),
    ],
)
def test_a_migrated_disk_is_where_the_driver_says_its_zones_are(
    affinity: dict[str, str], labels: dict[str, str], node: dict[str, str], fits: bool
) -> None:
    """As kube-scheduler answers, asked by hand: the rules of `translateTopologyFromInTreeToCSI`."""
    volume = {"gcePersistentDisk": {"pdName": "d"}, **(only_in(**affinity) if affinity else {})}

    found = why(a_pod("p", claimed()), storage(volume, labels=labels, migrated=PLUGIN), node)

    assert found == (None if fits else "node affinity of the volume of persistent volume claim data")


@pytest.mark.parametrize(
    ("disk", "zones", "handle"),
    [
        (Disk(kind="gcePersistentDisk", name="d"), "", "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"),
        (Disk(kind="gcePersistentDisk", name="d"), "r-a", "projects/UNSPECIFIED/zones/r-a/disks/d"),
        (Disk(kind="gcePersistentDisk", name="d"), "r-a__r-b", "projects/UNSPECIFIED/regions/r/disks/d"),
        (Disk(kind="gcePersistentDisk", name="d"), "r-a__s-b", ""),
        (Disk(kind="awsElasticBlockStore", name="aws://z/vol-1"), "", "vol-1"),
        (Disk(kind="awsElasticBlockStore", name="vol-1"), "", "vol-1"),
        (Disk(kind="rbd", name="rbd/image"), "", ""),
    ],
)
def test_an_in_tree_disk_has_the_handle_of_its_driver(disk: Disk, zones: str, handle: str) -> None:
    assert disk.handle(zones)[1] == handle


def test_a_volume_whose_claim_is_bound_to_none_is_told_wherever_the_pod_would_go() -> None:
    found = storage({})
    gone = Storage(claims=found.claims)

    assert why(a_pod("p", claimed("other")), found, {}) == "persistent volume claim other (it does not exist)"
    assert why(a_pod("p", claimed()), gone, {}) == (
        "persistent volume claim data (it is bound to persistent volume pv, which does not exist)"
    )


def test_the_claim_of_a_pod_is_not_taken_for_that_of_the_pod_that_comes_in_its_place() -> None:
    """A look at the pods of a LeaderWorkerSet ahead has a leader of the same name as the one that is there."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "there", "controller": True}
    spec = {"storageClassName": "local"}
    meta = {"name": "p-v0", "namespace": "team", "ownerReferences": [owner]}
    found = Storage(claims={"team/p-v0": persistent_volumes.decode_claim({"metadata": meta, "spec": spec})})
    other = a_pod("p", {"ephemeral": {}})
    expected = replace(other, meta=replace(other.meta, uid=names.expected_pod(Uid("set"), 0)))

    assert pod_claims.resolve(expected, found).unjudged == ("ephemeral volume v0",)
    assert pod_claims.resolve(expected, found).refusal is None
    refused = pod_claims.resolve(other, found).refusal
    assert refused is not None
    assert "was not made for the pod" in refused.text


def test_the_volumes_of_a_pod_for_which_the_node_is_kept_count() -> None:
    disk = {"gcePersistentDisk": {"pdName": "d"}}
    found = storage({"csi": {"driver": "d", "volumeHandle": "h"}})
    claims = {key: replace(one, access_modes=frozenset({"ReadWriteOncePod"})) for key, one in found.claims.items()}
    sole = Storage(claims=claims, volumes=found.volumes, nodes=found.nodes)

    assert why(a_pod("p", disk), Storage(), {}, nominated=a_pod("n", disk)) is not None
    assert why(a_pod("p", claimed(), disk), sole, {}, nominated=a_pod("n", claimed())) is not None
    # kube-scheduler skips VolumeRestrictions where no disk and no pod that is there asks for it.
    assert why(a_pod("p", claimed()), sole, {}, nominated=a_pod("n", claimed())) is None


def test_pods_that_only_read_a_disk_share_a_node() -> None:
    reads, writes = ({"gcePersistentDisk": {"pdName": "d", "readOnly": only}} for only in (True, False))
    found = Storage()

    assert why(a_pod("p", reads), found, {}, a_pod("q", reads)) is None
    assert why(a_pod("p", writes), found, {}, a_pod("q", reads)) == "other use of disk d"
    assert why(a_pod("p", writes), found, {}, a_pod("q", {"gcePersistentDisk": {"pdName": "e"}})) is None


def test_a_pod_of_the_gang_with_another_disk_keeps_a_pod_off_by_its_port_alone() -> None:
    def with_port(name: str) -> Pod:
        container = {"name": "c", "ports": [{"containerPort": 1, "hostPort": 80}]}
        volume = {"name": "v", "gcePersistentDisk": {"pdName": name}}
        meta = {"name": name, "namespace": "team", "uid": name}
        return pods.decode({"metadata": meta, "spec": {"containers": [container], "volumes": [volume]}})

    node = nodes.decode({"metadata": {"name": "n"}})
    rules = PodRules(with_port("p"), PlacedPods(storage=Storage()), {node.name: node})
    effect = rules.effect(with_port("q"))
    assert effect is not None
    assert effect[1] is None

    rules.add(effect, node, 1)

    refusal = rules.refuses(node)
    assert refusal is not None
    assert refusal.rule is Rule.PORTS


VOLUMES: dict[str, tuple[tuple[Pod, ...], tuple[Pod, ...], list[str]]] = {
    "one that a single pod uses": ((a_pod("p", claimed()),), (), []),
    "one that two pods of the gang use": ((a_pod("p", claimed()), a_pod("q", claimed())), (), ["h"]),
    "one that another pod uses": ((a_pod("p", claimed()),), (a_pod("other", claimed()),), ["h"]),
}


@pytest.mark.parametrize(("gang", "others", "shared"), VOLUMES.values(), ids=VOLUMES)
def test_volumes_that_several_pods_use_are_shared(
    gang: tuple[Pod, ...], others: tuple[Pod, ...], shared: list[str]
) -> None:
    found = storage({"csi": {"driver": "csi.test", "volumeHandle": "h"}})
    placed = PlacedPods(storage=found).added((NodeName("n"), one.meta.uid, PlacedPod.of(one)) for one in others)

    assert sorted(handle for _, handle in node_volume_limits.shared(gang, placed).volumes) == shared


def test_a_volume_that_is_attached_already_is_shared() -> None:
    attachment = csi.decode_attachment(
        {
            "metadata": {"name": "a"},
            "spec": {"attacher": "csi.test", "nodeName": "m", "source": {"persistentVolumeName": "pv"}},
        }
    )
    found = storage({"csi": {"driver": "csi.test", "volumeHandle": "h"}}, attachments={"a": attachment})

    shared = node_volume_limits.shared((a_pod("p", claimed()),), PlacedPods(storage=found))

    assert shared.volumes == {("csi.test", "h")}


def test_pods_that_are_only_wanted_keep_no_pod_off_by_their_volumes() -> None:
    """As where it is asked what would be if nothing else were in use."""
    writes = {"gcePersistentDisk": {"pdName": "d"}}
    node = nodes.decode({"metadata": {"name": "n"}})
    there = [(node.name, one.meta.uid, PlacedPod.of(one)) for one in (a_pod("q", writes),)]
    placed = PlacedPods(storage=Storage()).added(there)

    assert PodRules(a_pod("p", writes), placed, {node.name: node}).refuses(node) is not None
    assert PodRules(a_pod("p", writes), placed.as_wanted_only(), {node.name: node}).refuses(node) is None


def waiting(*volumes: PersistentVolume) -> Storage:
    """Return two claims that wait for their pods, and volumes of their class, which nobody makes."""
    spec = {"storageClassName": "disk"}
    claims = [{"metadata": {"name": name, "namespace": "team"}, "spec": spec} for name in ("data", "other")]
    late = {"provisioner": NO_PROVISIONER, "volumeBindingMode": "WaitForFirstConsumer"}
    return Storage(
        claims={one.meta.key: one for one in map(persistent_volumes.decode_claim, claims)},
        volumes={one.meta.name: one for one in volumes},
        classes={"disk": persistent_volumes.decode_class({"metadata": {"name": "disk"}, **late})},
    )


def volume_for(name: str, **spec: Any) -> PersistentVolume:
    """Return a volume that is kept for a claim."""
    reference = {"storageClassName": "disk", "claimRef": {"namespace": "team", "name": name}}
    return persistent_volumes.decode_volume({"metadata": {"name": f"for-{name}"}, "spec": {**reference, **spec}})


def test_a_volume_that_is_kept_for_a_claim_is_not_taken_where_it_does_not_fit() -> None:
    assert why(a_pod("p", claimed()), waiting(volume_for("data")), {}) is None
    assert why(a_pod("p", claimed()), waiting(volume_for("data", volumeMode="Block")), {}) == (
        "lack of a volume for persistent volume claim data"
    )


@pytest.mark.parametrize(
    ("volumes", "assumed", "is_known"),
    [
        ((), AssumedVolumes(), False),
        ((volume_for("data"),), AssumedVolumes(), True),
        ((), AssumedVolumes(volumes={"team/data": "pv"}), True),
        ((), AssumedVolumes(nodes={"team/data": NodeName("n")}), True),
    ],
)
def test_claims_are_alike_unless_something_is_kept_or_planned_for_one(
    volumes: tuple[PersistentVolume, ...], assumed: AssumedVolumes, *, is_known: bool
) -> None:
    found = waiting(*volumes)

    one, two = (
        volume_binding.fingerprint(pod_claims.resolve(a_pod("p", claimed(name)), found), found, assumed, frozenset())
        for name in ("data", "other")
    )

    assert (one != two) is is_known
