"""Every filter of kube-scheduler on a real control plane: a gang is held by its rule, the world changes, it starts."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from tests.controlplane import ApiError, ControlPlane, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e import intruders
from tests.e2e.labs import Lab, plain
from tests.e2e.musters import Muster

Json = dict[str, Any]

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
OUTSIDE = "/api/v1/namespaces/default/pods"
"""Of a namespace without a queue: where pods have one, they may name no node."""
VOLUMES = "/api/v1/persistentvolumes"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
STORAGE = "/apis/storage.k8s.io/v1"
CLASSES, CSI_NODES, CSI_DRIVERS = f"{STORAGE}/storageclasses", f"{STORAGE}/csinodes", f"{STORAGE}/csidrivers"
JOB_NAME = "batch.kubernetes.io/job-name"
PORT = {"containerPort": 9000, "hostPort": 31888}
FEATURE = "RestartAllContainersOnContainerExits"
NOWHERE, BUSY = "NoFeasiblePlacement", "DevicesBusy"


@dataclass(kw_only=True)
class World:
    """Two nodes with two devices each, and what a test adds to them. key: a label, class or driver of its own."""

    lab: Lab
    nodes: tuple[str, ...]
    added: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        return f"{self.lab.namespace.name}.example.com"

    @property
    def claims(self) -> str:
        return f"/api/v1/namespaces/{self.lab.namespace.name}/persistentvolumeclaims"

    def add(self, collection: str, name: str, body: Json) -> None:
        """Create an object of no namespace, or of one that outlives the test."""
        self.lab.client.create(collection, {"metadata": {"name": name, **body.pop("metadata", {})}, **body})
        self.added.append(f"{collection}/{name}")

    def patch(self, node: str, body: Json, part: str = "") -> None:
        self.lab.client.merge_patch(f"/api/v1/nodes/{node}{part}", body)

    def patch_all(self, body: Json) -> None:
        for node in self.nodes:
            self.patch(node, body)

    def label(self, node: str, **labels: str) -> None:
        self.patch(node, {"metadata": {"labels": labels}})

    def remove(self, path: str) -> None:
        self.lab.client.delete(f"{path}?gracePeriodSeconds=0")
        self.added.remove(path)

    def runs(self, name: str, node: str, labels: Json | None = None) -> None:
        """Have a pod outside run on a node, with the host port."""
        pod = workloads.pod(name, labels=labels, nodeName=node)
        pod["spec"]["containers"][0]["ports"] = [PORT]
        self.add(OUTSIDE, name, pod | {"metadata": {"labels": labels or {}}})

    def volume(self, name: str, source: Json, *, labels: Json | None = None, **spec: Any) -> None:
        whole = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "", **source}
        self.add(
            VOLUMES, f"{name}-{self.lab.namespace.name}", {"metadata": {"labels": labels or {}}, "spec": whole | spec}
        )

    def local(self, name: str, node: str) -> None:
        """Add a volume of a node, in the class of the test."""
        term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}
        affinity = {"required": {"nodeSelectorTerms": [term]}}
        self.volume(name, {"local": {"path": "/disk"}}, nodeAffinity=affinity, storageClassName=self.key)

    def local_class(self) -> None:
        made = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
        self.add(CLASSES, self.key, made)

    def bound(self, source: Json, *, mode: str = "ReadWriteOnce", labels: Json | None = None, **volume: Any) -> None:
        """Add the claim `data`, and a volume to which the controller of volumes binds it."""
        reference = {"name": "data", "namespace": self.lab.namespace.name}
        self.volume("data", source, labels=labels, claimRef=reference, accessModes=[mode], **volume)
        self.claim(accessModes=[mode], storageClassName="", volumeName=f"data-{self.lab.namespace.name}")
        claim = f"{self.claims}/data"
        eventually(lambda: self.lab.client.get(claim)["status"]["phase"] == "Bound", what="the claim is bound")

    def claim(self, **spec: Any) -> None:
        """Add the claim `data`."""
        asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
        self.lab.client.create(self.claims, {"metadata": {"name": "data"}, "spec": asked})

    def made_on_demand(self, **of_class: Any) -> None:
        """Add the claim `data` in a class whose driver, which `provision` plays, makes volumes for the first pod."""
        self.add(CLASSES, self.key, {"provisioner": self.key, "volumeBindingMode": "WaitForFirstConsumer", **of_class})
        self.claim(storageClassName=self.key)

    def provision(self) -> None:
        """Make the volume of the claim once kube-scheduler has chosen its node."""
        path = f"{self.claims}/data"

        def is_chosen() -> bool:
            return "volume.kubernetes.io/selected-node" in self.lab.client.get(path)["metadata"].get("annotations", {})

        eventually(is_chosen, what="a node is selected for the claim")
        reference = {"name": "data", "namespace": self.lab.namespace.name}
        source = {"csi": {"driver": self.key, "volumeHandle": "data"}}
        self.volume("data", source, claimRef=reference, storageClassName=self.key)

    def limit(self, count: int) -> None:
        """Say that the driver of the test attaches so many volumes to each node."""
        for node in self.nodes:
            driver = {"name": self.key, "nodeID": node, "topologyKeys": [], "allocatable": {"count": count}}
            self.add(CSI_NODES, node, {"spec": {"drivers": [driver]}})

    def clear(self) -> None:
        for path in reversed(self.added):
            self.lab.client.delete(f"{path}?gracePeriodSeconds=0")


@pytest.fixture
def world(control_plane: ControlPlane, muster: Muster, namespace: Namespace) -> Iterator[World]:
    lab = Lab(control_plane=control_plane, muster=muster, namespace=namespace, driver=f"{namespace.name}.test")
    found = World(lab=lab, nodes=())
    try:
        lab.device_class()
        lab.meter("gpus", count={})
        found.nodes = tuple(lab.node(name, plain(2)) for name in ("one", "two"))
        for node in found.nodes:
            found.label(node, **{HOST: node})
        lab.found()
        yield found
    finally:
        lab.clear()
        found.clear()


def submit(world: World, name: str = "train", pods: int = 1, count: int = 1, **spec: Any) -> None:
    request = {"name": "gpu", "exactly": {"deviceClassName": world.lab.driver, "count": count}}
    world.lab.submit(name, pods=pods, request=request, **spec)


def container(**more: Any) -> Json:
    """The container of a pod of the gang, with more in it."""
    uses = {"claims": [{"name": "gpu"}]}
    return {"containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": uses, **more}]}


def uses_data(_: World) -> Json:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


def own_volume(world: World) -> Json:
    """A claim of each pod's own, in the class of the test."""
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": world.key}
    template = {"spec": {**spec, "resources": {"requests": {"storage": "1Gi"}}}}
    return {"volumes": [{"name": "own", "ephemeral": {"volumeClaimTemplate": template}}]}


class Case(NamedTuple):
    """What a gang asks, and what is there before; the reason of its hold with words of it; what changes then."""

    asks: Callable[[World], Json]
    reason: str
    words: str
    changes: Callable[[World], object]
    before: Callable[[World], object] = lambda _: None
    pods: int = 1


def near_partner(world: World) -> Json:
    selector = {"matchLabels": {"partner": world.lab.namespace.name}}
    term = {"topologyKey": HOST, "namespaces": ["default"], "labelSelector": selector}
    return {"affinity": {"podAffinity": {REQUIRED: [term]}}}


def spread(world: World) -> Json:
    selector = {"matchLabels": {"batch.kubernetes.io/job-name": "train"}}
    constraint = {"topologyKey": world.key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [{**constraint, "labelSelector": selector}]}


def near_namesake(world: World) -> Json:
    """Like `near_partner`, by the label of its namespace, and only a pod with the Job's name."""
    (term,) = near_partner(world)["affinity"]["podAffinity"][REQUIRED]
    del term["namespaces"]
    namespaces = {"matchLabels": {"kubernetes.io/metadata.name": "default"}}
    return {"affinity": {"podAffinity": {REQUIRED: [term | {"namespaceSelector": namespaces} | NAMESAKES]}}}


NAMESAKES = {"matchLabelKeys": [JOB_NAME]}


def partner(world: World, node: str, **labels: str) -> None:
    name = world.lab.namespace.name
    world.runs(f"partner-{len(world.added)}-{name}", node, {"partner": name, **labels})


def spread_by(**more: Any) -> Callable[[World], Json]:
    """Spread the pods of a Job over values of the test's own label, known by matchLabelKeys."""
    some = {"matchExpressions": [{"key": "batch.kubernetes.io/controller-uid", "operator": "Exists"}]}

    def asks(world: World) -> Json:
        (constraint,) = spread(world)["topologySpreadConstraints"]
        return {"topologySpreadConstraints": [constraint | {"labelSelector": some, **NAMESAKES, **more}]}

    return asks


def one_domain_tainted(world: World) -> None:
    """Give each node a domain, of which one is closed; a constraint that ignores taints counts it all the same."""
    for node in world.nodes:
        world.label(node, **{world.key: node})
    world.patch(world.nodes[1], {"spec": {"taints": [TAINT]}})


def has_overhead(world: World) -> None:
    world.add(
        "/apis/node.k8s.io/v1/runtimeclasses", world.key, {"handler": "any", "overhead": {"podFixed": {"cpu": "30"}}}
    )


def with_overhead(world: World) -> Json:
    return {"runtimeClassName": world.key, "resources": {"cpu": "10"}}


def requests(resources: Json) -> Callable[[World], Json]:
    return lambda _: {"resources": resources}


def with_sidecar(_: World) -> Json:
    image = "registry.k8s.io/pause:3.10"
    sidecar = {"name": "s", "image": image, "restartPolicy": "Always", "resources": {"requests": {"cpu": "30"}}}
    return {"resources": {"cpu": "10"}, "initContainers": [sidecar]}


def lacks(
    resource: str, later: str, asks: Callable[[World], Json], before: Callable[[World], object] = lambda _: None
) -> Case:
    """Of a resource of nodes there is too little until one has so much later; of cores the gang asks for 40."""
    change = {"status": {"allocatable": {resource: later}}}
    words = "needs 40000m cpu" if resource == "cpu" else resource
    return Case(asks, NOWHERE, words, lambda world: world.patch(world.nodes[0], change, "/status"), before)


def of_label(world: World) -> Json:
    """The node affinity of a volume of nodes with the test's own label."""
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": world.key, "operator": "Exists"}]}]}}


def topologies(world: World) -> list[Json]:
    return [{"matchLabelExpressions": [{"key": world.key, "values": ["yes"]}]}]


def is_allowed(world: World) -> None:
    world.label(world.nodes[1], **{world.key: "yes"})
    world.provision()


def tells_capacity(world: World) -> None:
    world.add(CSI_DRIVERS, world.key, {"spec": {"storageCapacity": True, "attachRequired": False}})
    world.made_on_demand()


def has_capacity(world: World) -> None:
    collection = f"{STORAGE}/namespaces/{world.lab.namespace.name}/csistoragecapacities"
    place = {"matchLabels": {HOST: world.nodes[1]}}
    world.add(collection, "space", {"storageClassName": world.key, "nodeTopology": place, "capacity": "5Gi"})
    world.provision()


def ports_in_use(world: World) -> None:
    for node in world.nodes:
        world.runs(f"port-{node}", node)


def restarts_all(_: World) -> Json:
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    return container(restartPolicy="Never", restartPolicyRules=[rule])


def elsewhere(world: World) -> None:
    for node in world.nodes:
        world.label(node, **{ZONE: "z1"})
    world.bound({"hostPath": {"path": "/data"}}, labels={ZONE: "z2"})


def one_user(world: World) -> None:
    world.bound({"hostPath": {"path": "/data"}}, mode="ReadWriteOncePod")
    submit(world, "first", **uses_data(world))
    world.lab.team.wait_running("first", 1)


def attaches_none(world: World) -> None:
    world.limit(0)
    world.bound({"csi": {"driver": world.key, "volumeHandle": "data"}})


def attaches_one(world: World) -> None:
    for node in world.nodes:
        world.remove(f"{CSI_NODES}/{node}")
    world.limit(1)


def one_volume(world: World) -> None:
    world.local_class()
    world.local("near", world.nodes[0])


def nominates(world: World) -> None:
    """Have kube-scheduler evict a pod, which goes on for now, for another one that gets its room then."""
    node, client = world.nodes[0], world.lab.client
    world.label(node, **{world.key: "yes"})
    world.add(PRIORITIES, world.key, {"value": 1000})
    prior = workloads.pod("dry", priorityClassName=world.key)
    outside = Namespace(name="default", client=client)
    eventually(lambda: intruders.is_taken(outside, prior), what="the API server's admission knows the class")
    asked: dict[str, Json] = {"low": {"nodeName": node}, "high": {"priorityClassName": world.key}}
    for name, spec in asked.items():
        pod = workloads.pod(name, nodeSelector={world.key: "yes"}, terminationGracePeriodSeconds=300, **spec)
        pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "20"}}
        meta = {"annotations": {workloads.LINGER: "true"}}
        world.add(OUTSIDE, f"{name}-{world.lab.namespace.name}", {"metadata": meta, "spec": pod["spec"]})
    path = f"{OUTSIDE}/high-{world.lab.namespace.name}"
    eventually(lambda: client.get(path)["status"].get("nominatedNodeName") == node, what="a node is kept for the pod")


TAINT = {"key": "example.com/broken", "effect": "NoSchedule"}

CASES = {
    "InterPodAffinity": Case(
        near_partner,
        NOWHERE,
        f"podAffinity on {HOST}",
        lambda world: world.runs(
            f"partner-{world.lab.namespace.name}", world.nodes[1], {"partner": world.lab.namespace.name}
        ),
    ),
    "InterPodAffinity: namespaceSelector, matchLabelKeys": Case(
        near_namesake,
        NOWHERE,
        f"podAffinity on {HOST}",
        lambda world: partner(world, world.nodes[1], **{JOB_NAME: "train"}),
        lambda world: partner(world, world.nodes[0], **{JOB_NAME: "another"}),
    ),
    "PodTopologySpread: minDomains, matchLabelKeys": Case(
        spread_by(minDomains=2),
        NOWHERE,
        "(it is 2, and there is 1 domain)",
        lambda world: world.label(world.nodes[1], **{world.key: "another"}),
        lambda world: world.label(world.nodes[0], **{world.key: "one"}),
        pods=2,
    ),
    "PodTopologySpread: nodeTaintsPolicy": Case(
        spread_by(nodeTaintsPolicy="Ignore"),
        NOWHERE,
        "topologySpreadConstraints on",
        lambda world: world.patch(world.nodes[1], {"spec": {"taints": None}}),
        one_domain_tainted,
        pods=2,
    ),
    "PodTopologySpread": Case(
        spread,
        NOWHERE,
        "topologySpreadConstraints for a label",
        lambda world: world.patch_all({"metadata": {"labels": {world.key: "yes"}}}),
        pods=2,
    ),
    "NodePorts": Case(
        lambda _: container(ports=[PORT]),
        BUSY,
        "hostPort",
        lambda world: world.remove(f"{OUTSIDE}/port-{world.nodes[0]}"),
        ports_in_use,
    ),
    "NodeUnschedulable": Case(
        lambda _: {},
        NOWHERE,
        "unschedulable",
        lambda world: world.patch(world.nodes[0], {"spec": {"unschedulable": None}}),
        lambda world: world.patch_all({"spec": {"unschedulable": True}}),
    ),
    "TaintToleration": Case(
        lambda _: {},
        NOWHERE,
        "taint example.com/broken",
        lambda world: world.patch(world.nodes[0], {"spec": {"taints": None}}),
        lambda world: world.patch_all({"spec": {"taints": [TAINT]}}),
    ),
    "NodeAffinity": Case(
        lambda world: {"nodeSelector": {world.key: "yes"}},
        NOWHERE,
        "does not have label",
        lambda world: world.label(world.nodes[1], **{world.key: "yes"}),
    ),
    "NodeResourcesFit": lacks("cpu", "64", requests({"cpu": "40"})),
    "NodeResourcesFit: overhead": lacks("cpu", "64", with_overhead, before=has_overhead),
    "NodeResourcesFit: sidecars": lacks("cpu", "64", with_sidecar),
    "NodeResourcesFit: the pod as a whole": lacks("cpu", "64", lambda _: {"of_pod": {"cpu": "40"}}),
    "NodeResourcesFit: huge pages": lacks("hugepages-2Mi", "64Mi", requests({"cpu": "1", "hugepages-2Mi": "4Mi"})),
    "NodeResourcesFit: ephemeral storage": lacks("ephemeral-storage", "4Ti", requests({"ephemeral-storage": "2Ti"})),
    "NodeDeclaredFeatures": Case(
        restarts_all,
        NOWHERE,
        FEATURE,
        lambda world: world.patch(world.nodes[0], {"status": {"declaredFeatures": [FEATURE]}}, "/status"),
    ),
    "DynamicResources": Case(
        lambda _: {"count": 3}, NOWHERE, "needs 3 devices of class", lambda world: world.lab.node("three", plain(3))
    ),
    "VolumeBinding": Case(
        own_volume,
        NOWHERE,
        "lack of a volume for persistent volume claim",
        lambda world: world.local("far", world.nodes[1]),
        one_volume,
        pods=2,
    ),
    "VolumeBinding: bound claims": Case(
        uses_data,
        NOWHERE,
        "node affinity of the volume of persistent volume claim data",
        lambda world: world.label(world.nodes[1], **{world.key: "yes"}),
        lambda world: world.bound({"hostPath": {"path": "/data"}}, nodeAffinity=of_label(world)),
    ),
    "VolumeBinding: allowedTopologies": Case(
        uses_data,
        NOWHERE,
        "allowed topologies of the class of persistent volume claim data",
        is_allowed,
        lambda world: world.made_on_demand(allowedTopologies=topologies(world)),
    ),
    "VolumeBinding: capacity": Case(
        uses_data, NOWHERE, "lack of storage for persistent volume claim data", has_capacity, tells_capacity
    ),
    "VolumeZone": Case(
        uses_data,
        NOWHERE,
        "zone of the volume of persistent volume claim data",
        lambda world: world.label(world.nodes[1], **{ZONE: "z2"}),
        elsewhere,
    ),
    "VolumeRestrictions": Case(
        uses_data,
        BUSY,
        "other use of persistent volume claim data",
        lambda world: world.lab.team.finish("first"),
        one_user,
    ),
    "NodeVolumeLimits": Case(uses_data, NOWHERE, "volume limit of CSI driver", attaches_one, attaches_none),
    "DefaultPreemption": Case(
        lambda world: {"nodeSelector": {world.key: "yes"}, "resources": {"cpu": "10"}},
        BUSY,
        "for pods that it has nominated there",
        lambda world: world.remove(f"{OUTSIDE}/low-{world.lab.namespace.name}"),
        nominates,
    ),
}
"""By plugin. NodeName has a test of its own. DefaultPreemption filters nothing, but keeps nodes for pods."""


@pytest.mark.parametrize(
    "plugin",
    [
        *(name for name in CASES if name != "NodeDeclaredFeatures"),
        pytest.param("NodeDeclaredFeatures", marks=pytest.mark.since("1.36", "the plugin is off")),
    ],
)
def test_a_gang_is_held_by_a_rule_and_starts_when_the_world_has_changed(world: World, plugin: str) -> None:
    case, team = CASES[plugin], world.lab.team
    case.before(world)

    submit(world, pods=case.pods, **case.asks(world))
    team.wait_held("train", case.reason, case.words)
    case.changes(world)

    team.wait_running("train", case.pods)


def test_a_gang_gets_none_of_the_volumes_that_another_one_gets(world: World) -> None:
    """Both are there before either is bound: one volume is left for the second gang, which needs two."""
    team = world.lab.team
    world.local_class()
    for name, node in (("a", 0), ("b", 0), ("c", 1)):
        world.local(name, world.nodes[node])
    world.lab.stop_queue("Hold")
    for name in ("first", "second"):
        submit(world, name, pods=2, **own_volume(world))
    eventually(lambda: len([*team.pods("first"), *team.pods("second")]) == 4, what="both wait")
    world.lab.stop_queue("None")
    team.wait_running("first", 2)
    team.wait_held("second", NOWHERE, "lack of a volume for persistent volume claim second-")
    world.local("d", world.nodes[1])
    team.wait_running("second", 2)

    assert "notSimulated" not in (team.gang("second") or {})["status"]


def test_a_pod_that_names_a_node_enters_no_queue(world: World) -> None:
    with pytest.raises(ApiError, match="nodeName"):
        world.lab.client.create(world.lab.namespace.pods, workloads.pod("named", nodeName=world.nodes[0]))
