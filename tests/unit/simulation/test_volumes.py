"""`muster simulate` heeds the volumes of pods, as far as the manifests say what these are."""

from typing import Any

import pytest

from admission.api.values import names
from admission.api.values.reasons import HoldReason
from tests.unit.simulation.simulated import Objects, fates, job, node, nodes_of, of, simulate, teams

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
DRIVER = "csi.example.com"
STORAGE = "storage.k8s.io/v1"


def in_zone(zone: str, name: str, gpus: int = 2) -> Objects:
    made, *rest = node(name, gpus)
    return [{**made, "metadata": {"name": name, "labels": {ZONE: zone, HOST: name}}}, *rest]


HARDWARE = [*in_zone("z1", "a"), *in_zone("z1", "b"), *in_zone("z2", "c")]


def with_volumes(made: Objects, *volumes: dict[str, Any]) -> Objects:
    template, run = made
    run["spec"]["template"]["spec"]["volumes"] = [{"name": f"v{at}", **one} for at, one in enumerate(volumes)]
    return [template, run]


def uses(claim: str) -> dict[str, Any]:
    return {"persistentVolumeClaim": {"claimName": claim}}


def claim(name: str, *, class_name: str | None = "fast", mode: str = "ReadWriteMany", size: str = "1Gi") -> Objects:
    spec: dict[str, Any] = {"accessModes": [mode], "resources": {"requests": {"storage": size}}}
    if class_name is not None:
        spec["storageClassName"] = class_name
    return [{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}]


def bound(name: str, *, mode: str = "ReadWriteMany", labels: dict[str, str] | None = None, **spec: Any) -> Objects:
    """A claim with its volume."""
    (made,) = claim(name, mode=mode)
    made["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    made["spec"]["volumeName"] = f"pv-{name}"
    return [made, *volume(f"pv-{name}", labels=labels, claimRef={"name": name, "namespace": "default"}, **spec)]


def volume(name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> Objects:
    whole = {
        "accessModes": ["ReadWriteMany"],
        "capacity": {"storage": "5Gi"},
        "storageClassName": "fast",
        "csi": {"driver": DRIVER, "volumeHandle": name},
        **spec,
    }
    metadata = {"name": name, "labels": labels or {}}
    status = {"phase": "Available"}
    return [{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": whole, "status": status}]


def only_on(key: str, value: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}


def storage_class(name: str, *, provisioner: str = DRIVER, **more: Any) -> Objects:
    made = {"apiVersion": STORAGE, "kind": "StorageClass", "metadata": {"name": name}, "provisioner": provisioner}
    return [{**made, "volumeBindingMode": "WaitForFirstConsumer", **more}]


def limit(name: str, count: int) -> Objects:
    drivers = [{"name": DRIVER, "nodeID": name, "topologyKeys": [], "allocatable": {"count": count}}]
    return [{"apiVersion": STORAGE, "kind": "CSINode", "metadata": {"name": name}, "spec": {"drivers": drivers}}]


def test_pods_go_where_their_bound_volume_can_be_used() -> None:
    train = with_volumes(job("train", pods=2), uses("data"))
    there = of(simulate(teams(), HARDWARE, train, bound("data", **only_on(ZONE, "z2"))), "train")
    nowhere = of(simulate(teams(), HARDWARE, train, bound("data", **only_on(ZONE, "z9"))), "train")

    assert (nodes_of(there), there.not_simulated) == (["c", "c"], ())
    assert nowhere.reason == HoldReason.NO_FEASIBLE_PLACEMENT
    assert (
        "a, b and c may not take it by node affinity of the volume of persistent volume claim data" in nowhere.message
    )


def test_the_zone_of_a_volume_is_heeded_too() -> None:
    train = with_volumes(job("train", pods=3), uses("data"))
    gang = of(simulate(teams(), HARDWARE, train, bound("data", labels={ZONE: "z2"})), "train")

    assert gang.reason == HoldReason.NO_FEASIBLE_PLACEMENT
    assert "zone of the volume of persistent volume claim data keeps it off a and b" in gang.message


def test_a_volume_is_made_where_its_class_and_the_space_allow_it() -> None:
    train = with_volumes(job("train"), uses("scratch"))
    places = [{"matchLabelExpressions": [{"key": ZONE, "values": ["z2"]}]}]
    by_class = [*claim("scratch"), *storage_class("fast", allowedTopologies=places)]
    space = {
        "apiVersion": STORAGE,
        "kind": "CSIStorageCapacity",
        "metadata": {"name": "b"},
        "storageClassName": "fast",
        "nodeTopology": {"matchLabels": {HOST: "b"}},
        "capacity": "10Gi",
    }
    driver = {
        "apiVersion": STORAGE,
        "kind": "CSIDriver",
        "metadata": {"name": DRIVER},
        "spec": {"storageCapacity": True},
    }
    objects = (teams(), HARDWARE, train, storage_class("fast"), [driver, space])
    small, large = claim("scratch", size="8Gi"), claim("scratch", size="20Gi")

    assert nodes_of(of(simulate(teams(), HARDWARE, train, by_class), "train")) == ["c"]
    assert nodes_of(of(simulate(*objects, small), "train")) == ["b"]
    assert "lack of storage for persistent volume claim scratch" in of(simulate(*objects, large), "train").message


def test_one_pod_at_a_time_uses_a_claim_for_one_pod() -> None:
    alone, two = (with_volumes(job("train", pods=pods), uses("sole")) for pods in (1, 2))
    sole = bound("sole", mode="ReadWriteOncePod")

    assert fates(simulate(teams(), HARDWARE, alone, sole)) == {"train": "Admitted"}
    gang = of(simulate(teams(), HARDWARE, two, sole), "train")
    assert gang.reason == HoldReason.NO_FEASIBLE_PLACEMENT
    assert "persistent volume claim sole" in gang.message


@pytest.mark.parametrize(("pods", "fate"), [(3, "Admitted"), (4, HoldReason.NO_FEASIBLE_PLACEMENT)])
def test_a_node_attaches_no_more_volumes_than_it_can(pods: int, fate: str) -> None:
    """Every pod has an ephemeral volume, and each node attaches one."""
    request = {"requests": {"storage": "1Gi"}}
    template = {"spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": request}}
    train = with_volumes(job("train", pods=pods), {"ephemeral": {"volumeClaimTemplate": template}})
    limits = [one for name in "abc" for one in limit(name, 1)]
    result = simulate(teams(), HARDWARE, train, storage_class("fast"), limits)

    assert fates(result) == {"train": fate}
    assert nodes_of(of(result, "train")) == (["a", "b", "c"] if fate == "Admitted" else [])
    assert of(result, "train").not_simulated == ()


def test_a_volume_that_all_pods_share_is_attached_to_a_node_once() -> None:
    train = with_volumes(job("train", pods=2), uses("data"))
    limits = [*limit("a", 1), *limit("b", 0), *limit("c", 0)]

    assert nodes_of(of(simulate(teams(), HARDWARE, train, bound("data"), limits), "train")) == ["a", "a"]


def test_a_disk_that_one_pod_writes_is_on_a_node_once() -> None:
    disk = {"gcePersistentDisk": {"pdName": "disk"}}
    first, second = (with_volumes(job(name, pods=1), disk) for name in ("first", "second"))
    result = simulate(teams(), HARDWARE, first, second)

    assert sorted(nodes_of(of(result, "first")) + nodes_of(of(result, "second"))) == ["a", "b"]


LOCAL = storage_class("local", provisioner="kubernetes.io/no-provisioner")


def on(node: str, name: str, **spec: Any) -> Objects:
    """A volume of a node."""
    return volume(name, storageClassName="local", **{"accessModes": ["ReadWriteOnce"], **only_on(HOST, node), **spec})


def one_volume_each(made: Objects, size: str = "1Gi") -> Objects:
    """Give each pod a claim of its own for a local volume, of an ephemeral volume."""
    asked = {
        "storageClassName": "local",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
    }
    return with_volumes(made, {"ephemeral": {"volumeClaimTemplate": {"spec": asked}}})


def test_pods_of_a_gang_share_no_local_volume() -> None:
    """Both GPUs of c are free, and one volume."""
    two, three = (one_volume_each(job("train", pods=pods)) for pods in (2, 3))
    volumes = [*on("c", "pv-c"), *on("a", "pv-a", capacity={"storage": "9Gi"})]
    placed = of(simulate(teams(), HARDWARE, two, LOCAL, volumes), "train")
    waits = of(simulate(teams(), HARDWARE, three, LOCAL, volumes), "train")
    large = of(simulate(teams(), HARDWARE, one_volume_each(job("train", pods=2), "6Gi"), LOCAL, volumes), "train")

    assert (nodes_of(placed), placed.not_simulated) == (["a", "c"], ())
    assert waits.reason == large.reason == HoldReason.NO_FEASIBLE_PLACEMENT
    assert "no node takes pod train-2: lack of a volume for persistent volume claim train-2-v0" in waits.message


@pytest.mark.parametrize(("on_c", "nodes"), [(2, ["c"]), (1, [])])
def test_the_pods_that_follow_into_a_domain_find_volumes_there(on_c: int, nodes: list[str]) -> None:
    """The first pod of an exclusive Job goes where the one that is made after it gets a volume, too."""
    template, run = one_volume_each(job("train", pods=2))
    replicated = [{"name": "part", "template": {"spec": run["spec"]}}]
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train", "annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": HOST}},
        "spec": {"replicatedJobs": replicated},
    }
    volumes = [*on("a", "pv-a"), *on("b", "pv-b"), *(one for at in range(on_c) for one in on("c", f"pv-c{at}"))]

    gang = of(simulate(teams(), HARDWARE, [template, jobset], LOCAL, volumes), "train")

    assert nodes_of(gang) == nodes, gang.message
    assert bool(nodes) or "train-part-0 (follower 1)" in gang.message


def test_a_gang_gets_the_volumes_that_gangs_before_it_leave() -> None:
    """The smallest volume that will do goes first: 5Gi on c, then 9Gi there, and then none is left."""
    volumes = [*on("c", "small"), *on("c", "large", capacity={"storage": "9Gi"})]
    gangs = [one_volume_each(job(name)) for name in ("first", "second", "third")]
    result = simulate(teams(), HARDWARE, *gangs, LOCAL, volumes)

    assert [nodes_of(of(result, name)) for name in ("first", "second", "third")] == [["c"], ["c"], []]
    assert "lack of a volume for persistent volume claim third-0-v0" in of(result, "third").message


def test_pods_that_share_a_claim_go_where_its_volume_is() -> None:
    shared = claim("shared", class_name="local", mode="ReadWriteMany")
    pair, train = (with_volumes(job("train", pods=pods), uses("shared")) for pods in (2, 3))
    zonal = volume("zonal", storageClassName="local", **only_on(ZONE, "z1"))
    near = volume("near", storageClassName="local", capacity={"storage": "2Gi"}, **only_on(HOST, "c"))
    placed = of(simulate(teams(), HARDWARE, train, LOCAL, shared, zonal), "train")
    two = of(simulate(teams(), HARDWARE, pair, LOCAL, shared, near), "train")

    assert (nodes_of(placed), placed.not_simulated) == (["a", "a", "b"], ())
    assert nodes_of(two) == ["c", "c"]
    assert of(simulate(teams(), HARDWARE, train, LOCAL, shared, near), "train").plan == ()


def test_a_volume_of_a_plain_manifest_is_available() -> None:
    """Its phase is written by kube-controller-manager; one that somebody else has claimed stays as it is told."""
    train, there = with_volumes(job("train"), uses("data")), [*claim("data", class_name="local"), *LOCAL]
    (free,), (taken,) = (
        volume("v", storageClassName="local", **more) for more in ({}, {"claimRef": {"name": "other"}})
    )
    del free["status"], taken["status"]

    gangs = [of(simulate(teams(), HARDWARE, train, there, [one]), "train") for one in (free, taken)]

    assert [gang.reason for gang in gangs] == [None, HoldReason.NO_FEASIBLE_PLACEMENT]


def test_which_of_several_volumes_of_one_size_a_claim_gets_is_named_as_not_simulated() -> None:
    train = one_volume_each(job("train"))
    same = of(simulate(teams(), HARDWARE, train, LOCAL, on("c", "one"), on("c", "two"), on("a", "else")), "train")
    zones = {"capacity": {"storage": "5Gi"}, **only_on(ZONE, "z2")}
    other = of(simulate(teams(), HARDWARE, train, LOCAL, on("c", "one"), on("c", "two", **zones)), "train")

    assert same.not_simulated == ()
    assert ["may give it any of several volumes" in text for text in other.not_simulated] == [True]


def test_a_volume_that_is_still_to_be_made_for_several_pods_is_named_as_not_simulated() -> None:
    train = with_volumes(job("train", pods=2), uses("shared"))
    gang = of(simulate(teams(), HARDWARE, train, storage_class("fast"), claim("shared")), "train")

    assert len(gang.plan) == 2
    assert "nobody knows yet which nodes can use the volume that is made for it" in "".join(gang.not_simulated)


def test_what_the_manifests_do_not_tell_of_volumes_is_named_and_keeps_no_pod_off() -> None:
    """A claim that is missing, one that is bound by the time the pod starts, and one whose volume is missing."""
    train = with_volumes(job("train"), uses("missing"), uses("soon"), uses("data"))
    now = storage_class("now", volumeBindingMode="Immediate")
    gang = of(simulate(teams(), HARDWARE, train, claim("soon", class_name="now"), now, bound("data")[:1]), "train")

    assert gang.plan
    assert [text.partition(" of pod ")[0] for text in gang.not_simulated] == [
        "persistent volume claim missing",
        "persistent volume claim soon",
        "persistent volume claim data",
    ]


def test_a_claim_without_a_class_has_the_default_one() -> None:
    default = storage_class("std", allowedTopologies=[{"matchLabelExpressions": [{"key": ZONE, "values": ["z2"]}]}])
    default[0]["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
    train = with_volumes(job("train"), uses("data"))

    assert nodes_of(of(simulate(teams(), HARDWARE, train, default, claim("data", class_name=None)), "train")) == ["c"]


@pytest.mark.parametrize("noted", [True, False], ids=["as the cluster notes it", "as people write it"])
def test_a_claim_that_states_its_volume_is_bound_to_it(noted: bool) -> None:
    made, *rest = bound("data", **only_on(HOST, "c"))
    made["status"] = {"phase": "Bound"}
    if not noted:
        del made["metadata"]["annotations"]

    train = with_volumes(job("train", pods=2), uses("data"))

    assert nodes_of(of(simulate(teams(), HARDWARE, train, [made, *rest]), "train")) == ["c", "c"]


PODS = ("p-0", "p-1", "p-2")


def elastic_pod(name: str) -> Objects:
    """One of three pods of a gang that starts with two, with a volume of its own."""
    annotations = {names.GANG: "train", names.GANG_SIZE: "3", names.GANG_MIN: "2"}
    template, made = with_volumes(job("train"), uses(f"data-{name}"))
    pod = made["spec"]["template"]
    metadata = {"name": name, "annotations": annotations}
    return [template, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod["spec"]}]


@pytest.mark.parametrize("unplaced", ["p-0", "p-1"])
def test_a_pod_of_an_elastic_gang_whose_volume_is_out_of_reach_gives_way_to_another(unplaced: str) -> None:
    pods = [elastic_pod(name) for name in PODS]
    claims = [bound(f"data-{name}", **only_on(ZONE, "z9" if name == unplaced else "z2")) for name in PODS]
    gang = of(simulate(teams(), HARDWARE, pods[0], [pod for _, pod in pods[1:]], *claims), "train")

    assert {pod.pod for pod in gang.plan} == {f"default/{name}" for name in PODS} - {f"default/{unplaced}"}


def pods_with(*mounted: str) -> dict[str, Any]:
    """Return the template of pods with a GPU that mount volumes."""
    mounts = [{"name": one, "mountPath": f"/{one}"} for one in mounted]
    container = {"name": "main", "image": "train", "volumeMounts": mounts}
    claims = [{"name": "gpu", "resourceClaimTemplateName": "train"}]
    return {"spec": {"restartPolicy": "Never", "containers": [container], "resourceClaims": claims}}


def claim_template(name: str) -> dict[str, Any]:
    (made,) = claim(name, mode="ReadWriteMany")
    return {"metadata": made["metadata"], "spec": made["spec"]}


def a_jobset(*mounted: str) -> Objects:
    jobs = {"parallelism": 2, "completions": 2, "template": pods_with(*mounted)}
    policies = [{"templates": [claim_template("data"), claim_template("other")]}]
    spec = {"replicatedJobs": [{"name": "a", "template": {"spec": jobs}}], "volumeClaimPolicies": policies}
    return [{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "set"}, "spec": spec}]


ONLY_C = [{"matchLabelExpressions": [{"key": ZONE, "values": ["z2"]}]}]


def test_the_claims_that_a_jobset_makes_are_planned_for_the_pods_that_mount_them() -> None:
    made = (teams(), HARDWARE, job("train")[:1], storage_class("fast", allowedTopologies=ONLY_C))

    assert nodes_of(of(simulate(*made, a_jobset("data")), "set")) == ["c", "c"]
    assert nodes_of(of(simulate(*made, a_jobset()), "set")) == ["a", "a"]


def test_claims_that_a_jobset_has_made_are_used() -> None:
    there = bound("data-set", **only_on(ZONE, "z2"))
    gang = of(simulate(teams(), HARDWARE, job("train")[:1], a_jobset("data"), there), "set")

    assert (nodes_of(gang), gang.not_simulated) == (["c", "c"], ())
