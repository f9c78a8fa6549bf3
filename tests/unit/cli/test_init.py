"""`muster init`: what is printed for a cluster passes lint there, and its gang starts there."""

import json
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from admission.api.values.decoding import Json
from admission.cli import cluster_options
from admission.cli.init import live_cluster
from admission.errors import ForbiddenError, GoneError
from tests.unit.cli.conftest import Muster


def a_class(name: str, expression: str) -> Json:
    selectors = [{"cel": {"expression": expression}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors},
    }


def a_node(name: str, *taints: Json) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {"taints": [*taints]},
        "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"}},
    }


def a_slice(driver: str, node: str, spec: Json, *, part: int = 0, parts: int = 1, pool: str = "") -> Json:
    where = {"nodeName": node} if node else {"allNodes": True}
    pooled = {"name": pool or node, "generation": 1, "resourceSliceCount": parts}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{pool or node}-{driver}-{part}"},
        "spec": {"driver": driver, "pool": pooled, **where, **spec},
    }


def devices(count: int, kind: str) -> Json:
    return {"devices": [{"name": f"{kind}-{at}", "attributes": {"type": {"string": kind}}} for at in range(count)]}


def partitioned(driver: str, node: str) -> list[Json]:
    """A GPU that is handed out whole, or in two halves."""
    sets = [{"name": "gpu-0-set", "counters": {"memory": {"value": "80Gi"}}}]

    def listed(name: str, kind: str, memory: str) -> Json:
        draws = [{"counterSet": "gpu-0-set", "counters": {"memory": {"value": memory}}}]
        return {"name": name, "attributes": {"type": {"string": kind}}, "consumesCounters": draws}

    parts = [listed("gpu-0", "gpu", "80Gi"), listed("mig-0", "mig", "40Gi"), listed("mig-1", "mig", "40Gi")]
    return [
        a_slice(driver, node, {"sharedCounters": sets}, part=0, parts=2),
        a_slice(driver, node, {"devices": parts}, part=1, parts=2),
    ]


GPU, TPU, NIC = "gpu.nvidia.com", "tpu.google.com", "nic.example.com"
OF_TYPE = "device.driver == '{0}' && device.attributes['{0}'].?type.orValue('') == '{1}'"
GPUS = [a_class(GPU, f"device.driver == '{GPU}'"), a_node("a"), a_slice(GPU, "a", devices(4, "gpu"))]
TAINT = {"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}

LAYOUTS: dict[str, list[Json]] = {
    "GPUs of one class": GPUS,
    "one GPU, so that the gang is one pod": [GPUS[0], a_node("a"), a_slice(GPU, "a", devices(1, "gpu"))],
    "GPUs and their partitions, as MIG has them": [
        a_class(GPU, OF_TYPE.format(GPU, "gpu")),
        a_class("mig.nvidia.com", OF_TYPE.format(GPU, "mig")),
        a_node("a"),
        *partitioned(GPU, "a"),
    ],
    "TPUs on nodes with a taint": [
        a_class(TPU, f"device.driver == '{TPU}'"),
        a_node("a", TAINT),
        a_node("b", TAINT, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}),
        a_node("no-tpus"),
        a_slice(TPU, "a", devices(4, "tpu")),
        a_slice(TPU, "b", devices(4, "tpu")),
    ],
    "several classes of several drivers": [
        a_class("a-nic", f"device.driver == '{NIC}'"),
        a_class("vfio.gpu.nvidia.com", f"device.driver == '{GPU}'"),
        a_class("nothing.example.com", "device.driver == 'nothing.example.com'"),
        *GPUS,
        a_slice(NIC, "a", devices(8, "nic")),
    ],
    "devices that every node reaches": [
        a_class("fabric", "device.driver == 'fabric.example.com'"),
        a_node("a"),
        a_slice("fabric.example.com", "", devices(4, "port"), pool="fabric"),
    ],
}


def written(folder: Path, objects: list[Json], name: str = "cluster.json") -> str:
    path = folder / name
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return str(path)


def printed(muster: Muster, *words: str) -> tuple[list[Any], str]:
    done = muster("init", *words)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one], done.stderr


def of_kind(kind: str, objects: list[Any]) -> list[Any]:
    return [one for one in objects if one["kind"] == kind]


@pytest.mark.parametrize("objects", LAYOUTS.values(), ids=LAYOUTS)
def test_what_is_printed_passes_lint_and_its_gang_starts_in_that_cluster(
    muster: Muster, tmp_path: Path, objects: list[Json]
) -> None:
    cluster = written(tmp_path, objects)
    done = muster("init", cluster, "--team", "vision")
    (tmp_path / "first.yaml").write_text(done.stdout)
    first = str(tmp_path / "first.yaml")

    linted, simulated = muster("lint", cluster, first), muster("simulate", cluster, first, "--format", "json")

    assert (done.returncode, linted.returncode) == (0, 0), linted.stdout
    assert "Job vision/first-gang would start now" in done.stderr
    (gang,) = json.loads(simulated.stdout)["gangs"]
    assert (gang["queue"], gang["decision"]) == ("vision", "Admitted")
    assert simulated.returncode == 0


def test_partitions_are_counted_by_the_memory_that_they_draw(muster: Muster, tmp_path: Path) -> None:
    """Whole GPUs and halves are the same hardware, so one meter counts both, and the queue has 80Gi, not 160."""
    objects, _ = printed(muster, written(tmp_path, LAYOUTS["GPUs and their partitions, as MIG has them"]))

    (meter,) = of_kind("Meter", objects)
    pool, _ = of_kind("Queue", objects)
    assert meter["spec"]["sources"] == [
        {"deviceClasses": [GPU, "mig.nvidia.com"], "counter": {"name": "memory"}},
    ]
    assert pool["spec"]["quotas"] == [{"meter": "gpu", "nominal": "80Gi"}]


def test_an_accelerator_is_chosen_and_every_driver_is_counted(muster: Muster, tmp_path: Path) -> None:
    objects, _ = printed(muster, written(tmp_path, LAYOUTS["several classes of several drivers"]))

    (template,) = of_kind("ResourceClaimTemplate", objects)
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    pool, _ = of_kind("Queue", objects)
    assert request["exactly"]["deviceClassName"] == GPU
    assert pool["spec"]["quotas"] == [{"meter": "gpu", "nominal": "4"}, {"meter": "nic", "nominal": "8"}]


def test_the_sample_tolerates_what_every_node_with_the_devices_has(muster: Muster, tmp_path: Path) -> None:
    objects, _ = printed(muster, written(tmp_path, LAYOUTS["TPUs on nodes with a taint"]))

    (job,) = of_kind("Job", objects)
    tolerations = job["spec"]["template"]["spec"]["tolerations"]
    assert tolerations == [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}]


def test_a_second_team_is_given_a_queue_of_its_own_below_the_pool(muster: Muster, tmp_path: Path) -> None:
    first, _ = printed(muster, written(tmp_path, GPUS), "--team", "vision")
    cluster = written(tmp_path, [*GPUS, *first])

    second, notes = printed(muster, cluster, "--team", "language")
    again, _ = printed(muster, cluster, "--team", "vision")

    assert [(one["kind"], one["metadata"]["name"]) for one in second] == [
        ("Namespace", "language"),
        ("Queue", "language"),
        ("ResourceClaimTemplate", "one-device"),
        ("Job", "first-gang"),
    ]
    assert "would start now" in notes
    assert again == []


def test_a_default_queue_that_exists_is_the_teams(muster: Muster, tmp_path: Path) -> None:
    """Neither the meter that knows the class nor the queue is printed again, nor is what is promised given twice."""
    own = Path(__file__).parents[3] / "config" / "examples"

    objects, notes = printed(muster, str(own), "--team", "vision")

    kinds = [(one["kind"], one["metadata"]["name"]) for one in objects]
    assert kinds == [("Queue", "cluster"), ("ResourceClaimTemplate", "one-device"), ("Job", "first-gang")]
    assert objects[0]["spec"]["quotas"] == [{"meter": "claims", "nominal": "0"}, {"meter": "gpus", "nominal": "0"}]
    assert objects[2]["spec"]["template"]["metadata"]["labels"] == {"muster.dev/queue": "research-vision"}
    assert "queues research have quotas of their own" in notes


def test_a_sample_that_would_wait_says_so(muster: Muster, tmp_path: Path) -> None:
    result = {"request": "device", "driver": GPU, "pool": "a", "device": "gpu-0"}
    held: Json = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "held", "namespace": "others"},
        "spec": {"devices": {"requests": [{"name": "device", "exactly": {"deviceClassName": GPU, "count": 1}}]}},
        "status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": "x", "uid": "x"}],
        },
    }
    one_gpu = LAYOUTS["one GPU, so that the gang is one pod"]

    _, notes = printed(muster, written(tmp_path, [*one_gpu, held]))

    assert "Job team-a/first-gang would wait now: " in notes


NOTHING = {
    "no slices": ([GPUS[0], a_node("a")], "install the DRA driver of your devices"),
    "slices without devices": (
        [*GPUS[:2], a_slice(GPU, "a", devices(0, "gpu"))],
        f"the ResourceSlices of {GPU} list no device",
    ),
    "no classes": (GPUS[1:], f"device.driver == '{GPU}'"),
    "classes of other devices": (
        [a_class("other", "device.driver == 'x.y'"), *GPUS[1:]],
        "no DeviceClass (other) selects",
    ),
}


@pytest.mark.parametrize(("objects", "told"), NOTHING.values(), ids=NOTHING)
def test_a_cluster_without_devices_is_told_what_to_do(
    muster: Muster, tmp_path: Path, objects: list[Json], told: str
) -> None:
    done = muster("init", written(tmp_path, objects))

    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


class FakeCluster:
    """The API server: lists what it has, keeps what is applied, and makes queues active at once."""

    server = "https://cluster"

    def __init__(self, objects: list[Json], *, forbidden: str = "", installed: bool = True) -> None:
        self.objects, self.forbidden, self.installed = objects, forbidden, installed
        self.applied: list[tuple[str, Json]] = []
        self.gangs: list[Json] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def version(self) -> tuple[int, int]:
        return 1, 37

    async def pages(self, path: str, **_: object) -> Any:
        plural = path.rpartition("/")[2]
        if plural == self.forbidden:
            raise ForbiddenError(f"you may not list {plural}")
        if "muster.dev" in path and not self.installed:
            raise GoneError(path)
        if plural == "gangs":
            yield {"items": self.gangs}
        kinds = {"nodes": "Node", "resourceslices": "ResourceSlice", "deviceclasses": "DeviceClass"}
        yield {"items": [one for one in self.objects if one["kind"] == kinds.get(plural)]}

    async def get(self, path: str) -> Json:
        name = path.rpartition("/")[2]
        active = any(one["metadata"]["name"] == name for _, one in self.applied)
        return {"status": {"conditions": [{"type": "Active", "status": "True" if active else "False"}]}}

    async def send(self, request: Any) -> Json:
        assert request.params == {"fieldManager": "muster-init"}
        self.applied.append((request.path, request.body))
        return {}


def a_gang(phase: str) -> Json:
    hold = {"hold": {"reason": "DevicesBusy", "message": "none is free"}}
    return {
        "metadata": {"name": "first-gang-ab12c", "namespace": "vision", "uid": "g"},
        "spec": {
            "queue": "vision",
            "size": 1,
            "workload": {"apiVersion": "batch/v1", "kind": "Job", "name": "first-gang", "uid": "j"},
        },
        "status": {
            "phase": phase,
            "queue": "vision",
            "size": 1,
            **(hold if phase == "Pending" else {"plan": [{"pod": "first-gang-0", "node": "a", "claims": []}]}),
        },
    }


def test_apply_creates_everything_in_order_by_the_users_own_rights(
    muster: Muster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster(GPUS, forbidden="pods")
    cluster.gangs = [a_gang("Running")]
    monkeypatch.setattr(cluster_options, "Connection", lambda *_, **__: cluster)

    done = muster("init", "--team", "vision", "--apply")

    assert done.returncode == 0, done.stderr
    assert [path for path, _ in cluster.applied] == [
        "/api/v1/namespaces/vision",
        "/apis/muster.dev/v1alpha1/meters/gpu",
        "/apis/muster.dev/v1alpha1/queues/cluster",
        "/apis/muster.dev/v1alpha1/queues/vision",
        "/apis/resource.k8s.io/v1/namespaces/vision/resourceclaimtemplates/one-device",
        "/apis/batch/v1/namespaces/vision/jobs/first-gang",
    ]
    assert "you may not list pods" in done.stderr
    assert "Job vision/first-gang created" in done.stdout
    assert "gang vision/first-gang-ab12c is Running on a" in done.stdout


@pytest.mark.parametrize(
    ("gangs", "told"),
    [
        ([], "no gang of Job vision/first-gang was seen"),
        (["Pending"], "gang vision/first-gang-ab12c waits: DevicesBusy: none is free"),
    ],
)
def test_apply_says_what_has_become_of_the_gang(
    muster: Muster, monkeypatch: pytest.MonkeyPatch, gangs: list[str], told: str
) -> None:
    cluster = FakeCluster(GPUS)
    cluster.gangs = [a_gang(phase) for phase in gangs]
    monkeypatch.setattr(cluster_options, "Connection", lambda *_, **__: cluster)
    monkeypatch.setattr(live_cluster, "START_SECONDS", 0.0)

    assert told in muster("init", "--team", "vision", "--apply").stdout


def test_apply_ends_before_the_job_when_no_muster_makes_the_queue_active(
    muster: Muster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster(GPUS)
    monkeypatch.setattr(cluster_options, "Connection", lambda *_, **__: cluster)
    monkeypatch.setattr(live_cluster, "_is_active", lambda _: False)
    monkeypatch.setattr(live_cluster, "ACTIVE_SECONDS", 0.01)

    done = muster("init", "--apply")

    assert done.returncode == 1
    assert "queue team-a has not become active" in done.stderr
    assert "jobs/first-gang" not in str(cluster.applied)


def test_a_cluster_without_muster_is_read_all_the_same(muster: Muster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_options, "Connection", lambda *_, **__: FakeCluster(GPUS, installed=False))

    objects, notes = printed(muster)

    assert "Muster is not installed in this cluster yet" in notes
    assert len(of_kind("Queue", objects)) == 2


WRONG = {
    "a team that cannot be": (("--team", "Vision"), "--team: 'Vision' is not"),
    "the team of all": (("--team", "cluster"), "--team: cluster is the queue of all teams"),
    "files and a cluster at once": (("x.yaml", "--apply"), "leave PATH out"),
}


@pytest.mark.parametrize(("words", "told"), WRONG.values(), ids=WRONG)
def test_init_refuses_options_that_cannot_be(muster: Muster, words: tuple[str, ...], told: str) -> None:
    done = muster("init", *words)

    assert done.returncode == 2
    assert told in done.stderr
