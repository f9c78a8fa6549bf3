"""`muster uninstall`: what it says before, and in which order it removes what."""

import math
from collections.abc import AsyncIterator, Mapping
from typing import Any, Self

import pytest

from admission.api.values import names
from admission.api.values.decoding import Json
from admission.cli import cluster_options
from admission.cli.uninstall import removal
from admission.errors import GoneError
from admission.kube.client import bounded_wait
from tests.unit.cli.conftest import Muster

SYSTEM = "muster-system"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/muster-controller"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/muster-controller"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
RULES = "/apis/resource.k8s.io/v1/devicetaintrules"
QUEUES = "/apis/muster.dev/v1alpha1/queues"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POLICY: Json = {"metadata": {"name": "muster-fence", "uid": "p"}}
FENCE: Json = {
    "metadata": {"name": "muster-fence-gpu.example.com", "uid": "f"},
    "spec": {
        "deviceSelector": {"driver": "gpu.example.com"},
        "taint": {"key": "muster.dev/fence", "effect": "NoSchedule"},
    },
}


def a_queue(name: str, *finalizers: str) -> Json:
    meta = {"name": name, "uid": name, "resourceVersion": "1", "finalizers": [*finalizers]}
    return {"metadata": meta, "spec": {"quotas": []}}


def a_gang(name: str, phase: str) -> Json:
    meta = {"name": name, "namespace": "vision", "uid": name}
    return {"metadata": meta, "spec": {"queue": "q", "size": 1}, "status": {"phase": phase}}


class FakeCluster:
    """Objects by path, with a Deployment of a pod; what is done to it, in order.

    lasting: how often the pod is still there when it is asked for after the Deployment was scaled.
    """

    server = "https://cluster"

    def __init__(self, objects: Mapping[str, Json], *, renewing: bool = False, lasting: float = 1) -> None:
        self.objects = dict(objects)
        self.done: list[str] = []
        self._renewing = renewing
        self._lasting = lasting
        self._looks = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def pages(self, path: str, **_: object) -> AsyncIterator[Json]:
        if path.startswith("/apis/muster.dev") and f"{CRDS}/queues.muster.dev" not in self.objects:
            raise GoneError(path)
        yield {"items": [one for key, one in self.objects.items() if key.startswith(f"{path}/")]}

    async def get(self, path: str, params: Mapping[str, Any] | None = None, **_: object) -> Json:
        if params and "labelSelector" in params:
            assert params == {"labelSelector": removal.CONTROLLER_PODS}
            self._lasting -= f"scaled {DEPLOYMENT}" in self.done
            return {"items": [] if self._lasting < 0 else [{}]}
        if path == LEASE and path in self.objects:
            self._looks += self._renewing
            spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 0}
            return {"metadata": {"resourceVersion": str(self._looks)}, "spec": spec}
        if path in self.objects:
            return self.objects[path]
        if path.count("/") <= 4:
            return {"items": [one for key, one in self.objects.items() if key.startswith(f"{path}/")]}
        raise GoneError(path)

    async def patch(self, path: str, body: Json, *_: object) -> Json:
        if path == f"{DEPLOYMENT}/scale":
            if DEPLOYMENT not in self.objects:
                raise GoneError(path)
            assert body == {"spec": {"replicas": 0}}
            self.done.append(f"scaled {DEPLOYMENT}")
        else:
            assert body["metadata"]["finalizers"] == ["other.example.com/finalizer"]
            self.done.append(f"patched {path}")
        return {}

    async def set(self, path: str, body: Json, *_: object) -> None:
        annotations = {key: value for key, value in body["metadata"]["annotations"].items() if value is None}
        assert body["metadata"]["annotations"] == annotations, "nothing is put on a node"
        self.done.append(f"took {', '.join(sorted(annotations))} from {path}")

    async def delete(self, path: str, *_: object) -> Json:
        root, found, rest = path.partition("/namespaces/vision/")
        listed = f"{root}/{rest.replace('/', '/vision-')}" if found else path  # as `pages` knows it
        if self.objects.pop(path, None) is None and self.objects.pop(listed, None) is None:
            raise GoneError(path)
        self.done.append(f"deleted {path}")
        return {}


@pytest.fixture
def objects() -> dict[str, Json]:
    """Return a cluster with everything that Muster makes."""
    own = f"/api/v1/namespaces/{SYSTEM}"
    return {
        DEPLOYMENT: {},
        LEASE: {},
        f"{CONFIGURATIONS}/mutatingwebhookconfigurations/muster": {},
        f"{CONFIGURATIONS}/validatingwebhookconfigurations/muster": {},
        f"{CONFIGURATIONS}/validatingadmissionpolicies/muster": {"metadata": {"name": "muster"}},
        f"{CONFIGURATIONS}/validatingadmissionpolicybindings/muster": {"metadata": {"name": "muster"}},
        f"{CONFIGURATIONS}/mutatingadmissionpolicies/muster": {"metadata": {"name": "muster"}},
        f"{CONFIGURATIONS}/mutatingadmissionpolicybindings/muster": {"metadata": {"name": "muster"}},
        f"{CONFIGURATIONS}/validatingadmissionpolicies/muster-fence": POLICY,
        f"{CONFIGURATIONS}/validatingadmissionpolicybindings/muster-fence": POLICY,
        f"{RULES}/muster-fence-gpu.example.com": FENCE,
        f"{QUEUES}/kept": a_queue("kept", "other.example.com/finalizer", names.IN_USE),
        f"{QUEUES}/free": a_queue("free"),
        "/apis/muster.dev/v1alpha1/gangs/vision-runs": a_gang("runs", "Running"),
        "/apis/muster.dev/v1alpha1/gangs/vision-waits": a_gang("waits", "Pending"),
        f"{own}/secrets/muster-webhook": {},
        f"{own}/secrets/muster-heads-key": {},
        f"{own}/configmaps/muster-heads": {},
        **{
            f"{CRDS}/{plural}.muster.dev": {} for plural in ("queues", "meters", "claimpolicies", "nodeshapes", "gangs")
        },
    }


def uninstall(
    muster: Muster, monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster, *words: str
) -> tuple[int, str, str]:
    monkeypatch.setattr(cluster_options, "Connection", lambda *_, **__: cluster)
    monkeypatch.setattr(bounded_wait, "POLL_SECONDS", 0.0)
    return muster("uninstall", *words)


def test_without_yes_it_says_what_runs_and_removes_nothing(
    muster: Muster, monkeypatch: pytest.MonkeyPatch, objects: dict[str, Json]
) -> None:
    cluster = FakeCluster(objects)

    code, said, notes = uninstall(muster, monkeypatch, cluster)

    assert (code, cluster.done) == (3, [])
    assert (
        "1 gang let in: the pods run on and keep their devices, and nobody counts them any more (vision/runs)" in said
    )
    assert "1 gang waiting: the pods stay behind the scheduling gate muster.dev/admission" in said
    assert "fences of gpu.example.com" in said
    assert "say --yes" in notes


def test_controllers_end_before_the_configurations_go_and_what_they_would_write_again(
    muster: Muster, monkeypatch: pytest.MonkeyPatch, objects: dict[str, Json]
) -> None:
    cluster = FakeCluster(objects)

    code, said, notes = uninstall(muster, monkeypatch, cluster, "--yes")

    assert code == 0, notes
    assert "removed the policy that adds gates" in said
    assert cluster.done == [
        f"scaled {DEPLOYMENT}",
        f"deleted {CONFIGURATIONS}/mutatingwebhookconfigurations/muster",
        f"deleted {CONFIGURATIONS}/validatingwebhookconfigurations/muster",
        f"deleted {CONFIGURATIONS}/mutatingadmissionpolicybindings/muster",
        f"deleted {CONFIGURATIONS}/mutatingadmissionpolicies/muster",
        f"deleted {CONFIGURATIONS}/validatingadmissionpolicybindings/muster",
        f"deleted {CONFIGURATIONS}/validatingadmissionpolicies/muster",
        f"deleted {RULES}/muster-fence-gpu.example.com",
        f"deleted {CONFIGURATIONS}/validatingadmissionpolicybindings/muster-fence",
        f"deleted {CONFIGURATIONS}/validatingadmissionpolicies/muster-fence",
        f"patched {QUEUES}/kept",
        f"deleted /api/v1/namespaces/{SYSTEM}/secrets/muster-webhook",
        f"deleted {LEASE}",
    ]
    assert f"{CRDS}/queues.muster.dev" in cluster.objects


def test_nodes_lose_what_muster_has_put_on_them_and_keep_what_others_have(
    muster: Muster, monkeypatch: pytest.MonkeyPatch, objects: dict[str, Json]
) -> None:
    put, theirs = "karpenter.sh/do-not-disrupt", "cluster-autoscaler.kubernetes.io/scale-down-disabled"
    marked = {put: "true", theirs: "true", names.SCALE_DOWN: put}
    for name, annotations in {"n1": marked, "n2": {theirs: "true"}}.items():
        objects[f"/api/v1/nodes/{name}"] = {"metadata": {"name": name, "annotations": annotations}}
    cluster = FakeCluster(objects)

    code, said, notes = uninstall(muster, monkeypatch, cluster, "--yes")

    assert code == 0, notes
    written = [one for one in cluster.done if "/nodes/" in one]
    assert written == [f"took {put}, {names.SCALE_DOWN} from /api/v1/nodes/n1"]
    assert "removed the annotations for autoscalers of Node n1" in said


def test_what_cluster_autoscaler_was_asked_for_is_deleted_and_requests_of_others_stay(
    muster: Muster, monkeypatch: pytest.MonkeyPatch, objects: dict[str, Json]
) -> None:
    requests, templates = "/apis/autoscaling.x-k8s.io/v1/provisioningrequests", "/api/v1/podtemplates"
    ours = {"labels": {names.MANAGED_BY: names.FIELD_MANAGER}, "annotations": {names.GANG: "vision/train"}}
    for collection, name in ((requests, "train-1"), (templates, "train-1-0"), (templates, "never-asked-0")):
        meta = {"name": name, "namespace": "vision", "uid": name}
        objects[f"{collection}/vision-{name}"] = {"metadata": {**meta, **ours}}
        objects[f"{collection}/theirs-{name}"] = {"metadata": {**meta, "namespace": "theirs"}}
    cluster = FakeCluster(objects)

    code, said, notes = uninstall(muster, monkeypatch, cluster, "--yes")

    assert code == 0, notes
    written = [one for one in cluster.done if "podtemplates" in one or "provisioning" in one]
    assert written == [
        "deleted /apis/autoscaling.x-k8s.io/v1/namespaces/vision/provisioningrequests/train-1",
        "deleted /api/v1/namespaces/vision/podtemplates/train-1-0",
        "deleted /api/v1/namespaces/vision/podtemplates/never-asked-0",
    ]
    assert "removed ProvisioningRequest vision/train-1\n" in said
    assert "removed PodTemplate vision/never-asked-0\n" in said
    assert cluster.done.index(written[0]) < cluster.done.index(f"patched {QUEUES}/kept")


def test_purge_leaves_nothing_but_the_deployment_which_is_the_charts(
    muster: Muster, monkeypatch: pytest.MonkeyPatch, objects: dict[str, Json]
) -> None:
    cluster = FakeCluster(objects)

    code, _, notes = uninstall(muster, monkeypatch, cluster, "--yes", "--purge")

    assert code == 0, notes
    assert {path for path in cluster.objects if "muster.dev/v1alpha1" not in path} == {DEPLOYMENT}


def test_while_a_controller_elsewhere_leads_nothing_is_removed(
    muster: Muster, monkeypatch: pytest.MonkeyPatch, objects: dict[str, Json]
) -> None:
    del objects[DEPLOYMENT]
    cluster = FakeCluster(objects, renewing=True)

    code, _, said = uninstall(muster, monkeypatch, cluster, "--yes")

    assert (code, cluster.done) == (2, [])
    assert "a controller leads still: somebody renews Lease muster-system/muster-controller" in said


def test_in_a_cluster_without_muster_it_is_done_at_once(muster: Muster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster({})

    code, said, notes = uninstall(muster, monkeypatch, cluster, "--yes", "--purge")

    assert (code, cluster.done) == (0, []), notes
    assert "no gang runs or waits" in said


def test_controllers_that_do_not_end_leave_the_configurations_in_place(
    muster: Muster, monkeypatch: pytest.MonkeyPatch, objects: dict[str, Json]
) -> None:
    monkeypatch.setattr(removal, "END_SECONDS", 0.01)
    cluster = FakeCluster(objects, lasting=math.inf)

    code, _, said = uninstall(muster, monkeypatch, cluster, "--yes")

    assert (code, cluster.done) == (1, [f"scaled {DEPLOYMENT}"])
    assert "have not ended; run this again" in said
