"""`muster shapes propose` prints what nodes have in common, and `muster simulate --with-shapes` what had to come."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from admission.api.capacity import node_shapes
from admission.api.values.decoding import Json
from tests.unit.cli.conftest import Muster

TYPE = "node.kubernetes.io/instance-type"
EXAMPLES = Path(__file__).parents[3] / "config" / "examples"


def a_node(name: str, *taints: Json, cpu: str = "64", kind: str = "gpu-4", **labels: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {TYPE: kind, "kubernetes.io/hostname": name, **labels}},
        "spec": {"taints": [*taints]},
        "status": {"allocatable": {"cpu": cpu, "memory": "256Gi"}},
    }


def a_slice(node: str, *serials: str, generation: int = 1, pool: str = "") -> Json:
    devices = [
        {"name": f"gpu-{at}", "attributes": {"model": {"string": "A"}, "serial": {"string": serial}}}
        for at, serial in enumerate(serials)
    ]
    where = {"name": pool or node, "generation": generation, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{pool}-{generation}"},
        "spec": {"driver": "gpu.example.com", "nodeName": node, "pool": where, "devices": devices},
    }


def a_daemon(node: str, cpu: str) -> Json:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"d-{node}", "namespace": "kube-system", "ownerReferences": [owner]},
        "spec": {"nodeName": node, "containers": [{"name": "d", "resources": {"requests": {"cpu": cpu}}}]},
    }


def proposed(muster: Muster, tmp_path: Path, *bodies: Json, words: tuple[str, ...] = ()) -> tuple[list[Any], str]:
    """Return the specs that are printed, and what is noted. Each is one that Muster can read."""
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump_all(bodies))
    code, out, notes = muster("shapes", "propose", str(tmp_path / "nodes.yaml"), *words)
    assert code == 0, notes
    shapes = [*yaml.safe_load_all(out)]
    assert [node_shapes.decode(shape).name for shape in shapes] == [shape["metadata"]["name"] for shape in shapes]
    return [shape["spec"] for shape in shapes], notes


GPU = {"key": "gpu", "effect": "NoSchedule"}
PASSES = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def test_a_shape_has_what_all_nodes_of_its_kind_have(muster: Muster, tmp_path: Path) -> None:
    (spec,), notes = proposed(
        muster,
        tmp_path,
        a_node("a", GPU, PASSES, zone="z", rack="1"),
        a_node("b", GPU, cpu="60", zone="z", rack="2"),
        a_slice("a", "s0", "s1"),
        a_slice("b", "old", "old", "old", "old"),
        a_slice("b", "s2", "s3", "s4", generation=2),
        a_daemon("b", "500m"),
    )

    model = {"model": {"string": "A"}}
    assert spec == {
        "maxCount": 4,
        "matchLabels": {TYPE: "gpu-4"},
        "labels": {"zone": "z"},
        "taints": [GPU],
        "allocatable": {"cpu": "59500m", "memory": "256Gi"},
        "resourceSlices": [
            {
                "driver": "gpu.example.com",
                "devices": [{"name": "gpu-0", "attributes": model}, {"name": "gpu-1", "attributes": model}],
            }
        ],
    }
    assert "a node has 3 devices, all nodes have 2 of them in common" in notes


def test_each_kind_of_node_is_a_shape_by_the_labels_that_are_named(muster: Muster, tmp_path: Path) -> None:
    nodes = [a_node("a", pool="X 1"), a_node("b", pool="y"), a_node("c", kind="other")]

    by_type, _ = proposed(muster, tmp_path, *nodes)
    by_pool, notes = proposed(muster, tmp_path, *nodes, words=("--by", "pool", "--max-count", "7"))

    assert [spec["matchLabels"] for spec in by_type] == [{TYPE: "gpu-4"}, {TYPE: "other"}]
    assert [(spec["matchLabels"], spec["maxCount"]) for spec in by_pool] == [({"pool": "y"}, 7)]
    assert "NodeShape x-1: spec.matchLabels.pool: 'X 1' is not a label's value" in notes
    assert "node c has no label pool, so it is of no shape" in notes


def test_of_several_pools_of_a_driver_none_is_generalised(muster: Muster, tmp_path: Path) -> None:
    (spec,), notes = proposed(muster, tmp_path, a_node("a"), a_slice("a", "0"), a_slice("a", "1", pool="second"))

    assert "resourceSlices" not in spec
    assert "driver gpu.example.com has several pools on a node" in notes


def test_nodes_without_such_a_label_are_no_shapes(muster: Muster, tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump(a_node("a")))

    code, _, said = muster("shapes", "propose", str(tmp_path / "nodes.yaml"), "--by", "pool")

    assert code == 2
    assert "no node has label pool; name a label whose values tell nodes apart" in said


SHAPES = str(EXAMPLES / "autoscaling")
TEAM = """
apiVersion: muster.dev/v1alpha1
kind: Meter
metadata: {name: gpus}
spec: {sources: [{deviceClasses: [gpu.example.com], count: {}}]}
---
apiVersion: muster.dev/v1alpha1
kind: Queue
metadata: {name: team}
spec: {namespaceSelector: {}, default: true, quotas: [{meter: gpus, nominal: 16}]}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: two}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com, count: 2}}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 4
  completions: 4
  template:
    spec:
      restartPolicy: Never
      tolerations: [{key: example.com/gpu, operator: Exists}]
      resourceClaims: [{name: gpus, resourceClaimTemplateName: two}]
      containers: [{name: main, image: train, resources: {claims: [{name: gpus}]}}]
"""


@pytest.fixture
def team(tmp_path: Path) -> str:
    """Return manifests of a gang on a cluster without nodes."""
    path = tmp_path / "team.yaml"
    path.write_text(TEAM)
    return str(path)


def test_simulate_with_shapes_shows_what_had_to_come_and_what_it_costs(muster: Muster, team: str) -> None:
    code, out, _ = muster("simulate", "--with-shapes", team, SHAPES)
    as_json = json.loads(muster("simulate", "--with-shapes", "-o", "json", team, SHAPES).stdout)

    assert code == 0
    assert re.search(r"gpu-x8 +1 +31.50 +31.50 +default/train", out)
    assert as_json["newNodes"] == [{"shape": "gpu-x8", "count": 1, "pricePerHour": "31.50", "gangs": ["default/train"]}]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--until-empty", SHAPES], "--with-shapes starts all gangs at once, and with --until-empty they wait"),
        ([], "--with-shapes needs a NodeShape in the input"),
    ],
)
def test_simulate_with_shapes_says_what_it_does_not_go_with(
    muster: Muster, team: str, words: list[str], said: str
) -> None:
    code, _, told = muster("simulate", "--with-shapes", team, *words)

    assert code == 2
    assert said in told


def test_nodes_of_karpenter_make_a_shape_that_names_their_node_pool(muster: Muster, tmp_path: Path) -> None:
    pool = {"karpenter.sh/nodepool": "gpu"}

    (spec,), _ = proposed(muster, tmp_path, a_node("a", **pool), a_node("b", **pool))

    assert spec["nodePool"] == "gpu"
    assert spec["matchLabels"] == {TYPE: "gpu-4"}
    assert "karpenter.sh/nodepool" not in spec.get("labels", {})


BAD_SLICES: dict[str, tuple[Json, str]] = {
    "a device without a name": ({"devices": [{"attributes": {}}]}, "spec.devices[0].name"),
    "devices that are no list": ({"devices": 3}, "spec.devices"),
    "a device that is none": ({"devices": ["gpu-0"]}, "spec.devices[0]"),
    "no driver": ({"driver": None}, "spec.driver"),
    "a pool that is none": ({"pool": "n1"}, "spec.pool"),
    "attributes that are none": ({"devices": [{"name": "a", "attributes": 3}]}, "spec.devices[0].attributes"),
    "counters that are none": ({"sharedCounters": {"a": 1}, "devices": []}, "spec.sharedCounters"),
    "no spec": ({}, "spec"),
}


@pytest.mark.parametrize(("fields", "named"), BAD_SLICES.values(), ids=BAD_SLICES)
def test_a_slice_that_cannot_be_read_is_named_with_its_field(
    muster: Muster, tmp_path: Path, fields: Json, named: str
) -> None:
    slice_ = a_slice("n1", "s0")
    spec = {**slice_["spec"], **fields} if fields else 3
    body = {**slice_, "metadata": {"name": "bad"}, "spec": spec}
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump_all([a_node("n1"), body]))

    code, out, said = muster("shapes", "propose", str(tmp_path / "nodes.yaml"))

    assert (code, out) == (2, "")
    assert "ResourceSlice bad" in said
    assert named in said
