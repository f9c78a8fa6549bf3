"""Pods that differ from a good one in one thing that Kubernetes refuses, and the field at fault.

The unit tests judge them by our rules; tests/e2e/test_validation.py sends the same ones to a real API server.
"""

from typing import Any

from tests.unit.api.cases import LONG, Case, Json, with_

GPU = "example.com/gpu"
ONE = {"name": "gpus", "resourceClaimName": "one"}
MAIN = "spec.containers[0]"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
NODES = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
PODS = f"spec.affinity.podAntiAffinity.{REQUIRED}[0]"
SPREAD = "spec.topologySpreadConstraints[0]"
SELECTOR = {"matchLabels": {"a": "b"}}


def pod(*containers: Json, **spec: Any) -> Json:
    body = {"containers": list(containers) or [container()], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "good"}, "spec": body}


def container(name: str = "main", **resources: Any) -> Json:
    return {"name": name, "image": "train", **({"resources": resources} if resources else {})}


def using(*claims: Json, **spec: Any) -> Json:
    return pod(container(claims=list(claims)), **{"resourceClaims": [ONE], **spec})


def asking(limits: Json | None = None, requests: Json | None = None) -> Json:
    return pod(container(limits=limits or {}, requests=requests or {}))


def ports(*found: Json, **spec: Any) -> Json:
    return pod({**container(), "ports": list(found)}, **spec)


def mounting(*mounts: Json, devices: tuple[Json, ...] = (), volumes: tuple[Json, ...] = ()) -> Json:
    of_pod = [
        {"name": "scratch", "emptyDir": {}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "a"}},
        *volumes,
    ]
    return pod({**container(), "volumeMounts": list(mounts), "volumeDevices": list(devices)}, volumes=of_pod)


def spread(*more: Json, labels: Json | None = None, **constraint: Any) -> Json:
    whole = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", **constraint}
    made = pod(topologySpreadConstraints=[with_(whole, {}), *more])
    return {**made, "metadata": {"name": "good", "labels": labels or {}}}


def tolerating(**toleration: Any) -> Json:
    return pod(tolerations=[toleration])


def on_nodes(term: Json | None = None, **preference: Any) -> Json:
    found: Json = {} if term is None else {REQUIRED: {"nodeSelectorTerms": [term]}}
    return pod(affinity={"nodeAffinity": {**found, **({PREFERRED: [preference]} if preference else {})}})


def beside(*, weight: int | None = None, **term: Any) -> Json:
    whole = with_({"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"}, term)
    found: Json = {REQUIRED: [whole]} if weight is None else {PREFERRED: [{"weight": weight, "podAffinityTerm": whole}]}
    return pod(affinity={"podAntiAffinity": found})


def requirement(operator: str, *values: str, key: str = "zone") -> Json:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


REFUSED = {
    "a claim that the pod does not declare": Case(using({"name": "gpu"}), f"{MAIN}.resources.claims[0]"),
    "a claim where the pod has none": Case(using({"name": "gpus"}, resourceClaims=[]), f"{MAIN}.resources.claims[0]"),
    "a used claim without a name": Case(using({"request": "a"}), f"{MAIN}.resources.claims[0]"),
    "a claim used twice": Case(using({"name": "gpus"}, {"name": "gpus"}), f"{MAIN}.resources.claims[1]"),
    "a request used twice": Case(
        using({"name": "gpus", "request": "a"}, {"name": "gpus", "request": "a"}), f"{MAIN}.resources.claims[1]"
    ),
    "a claim used whole after a part": Case(
        using({"name": "gpus", "request": "a"}, {"name": "gpus"}), f"{MAIN}.resources.claims[1]"
    ),
    "a part used after the whole": Case(
        using({"name": "gpus"}, {"name": "gpus", "request": "a"}), f"{MAIN}.resources.claims[1]"
    ),
    "a used request that is no label": Case(
        using({"name": "gpus", "request": "a.b"}), f"{MAIN}.resources.claims[0].request"
    ),
    "a claim of an init container that the pod does not declare": Case(
        pod(initContainers=[container("first", claims=[{"name": "x"}])], resourceClaims=[ONE]),
        "spec.initContainers[0].resources.claims[0]",
    ),
    "two claims of one name": Case(pod(resourceClaims=[ONE, ONE]), "spec.resourceClaims[1].name"),
    "a claim's name that is no label": Case(
        pod(resourceClaims=[{**ONE, "name": "a.b"}]), "spec.resourceClaims[0].name"
    ),
    "a claim's name that is too long": Case(pod(resourceClaims=[{**ONE, "name": LONG}]), "spec.resourceClaims[0].name"),
    "a claim without a name": Case(pod(resourceClaims=[{"resourceClaimName": "a"}]), "spec.resourceClaims[0].name"),
    "a claim of nothing": Case(pod(resourceClaims=[{"name": "gpus"}]), "spec.resourceClaims[0]"),
    "a claim that is a template's, too": Case(
        pod(resourceClaims=[{**ONE, "resourceClaimTemplateName": "one"}]), "spec.resourceClaims[0]"
    ),
    "the name of no claim": Case(
        pod(resourceClaims=[{**ONE, "resourceClaimName": "One"}]), "spec.resourceClaims[0].resourceClaimName"
    ),
    "the name of no template": Case(
        pod(resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "a/b"}]),
        "spec.resourceClaims[0].resourceClaimTemplateName",
    ),
    "half a GPU": Case(asking({GPU: "0.5"}), f"{MAIN}.resources.limits.{GPU}"),
    "less GPUs than the limit": Case(asking({GPU: "2"}, {GPU: "1"}), f"{MAIN}.resources.requests"),
    "more GPUs than the limit": Case(asking({GPU: "1"}, {GPU: "2"}), f"{MAIN}.resources.requests"),
    "GPUs without a limit": Case(asking({}, {GPU: "1"}), f"{MAIN}.resources.limits"),
    "more cores than the limit": Case(asking({"cpu": "1"}, {"cpu": "2"}), f"{MAIN}.resources.requests"),
    "less than no memory": Case(asking({}, {"memory": "-1"}), f"{MAIN}.resources.requests.memory"),
    "a resource that nobody knows": Case(asking({"gpu": "1"}), f"{MAIN}.resources.limits.gpu"),
    "a resource of quotas": Case(asking({"pods": "1"}), f"{MAIN}.resources.limits.pods"),
    "a resource that is no name": Case(asking({"a b/c": "1"}), f"{MAIN}.resources.limits.a b/c"),
    "a resource in the words of quotas": Case(
        asking({f"requests.{GPU}": "1"}), f"{MAIN}.resources.limits.requests.{GPU}"
    ),
    "huge pages alone": Case(asking({"hugepages-2Mi": "4Mi"}), f"{MAIN}.resources"),
    "half a huge page": Case(
        asking({"cpu": "1", "hugepages-2Mi": "3Mi"}), f"{MAIN}.resources.limits.hugepages-2Mi"
    ),
    "huge pages of no size": Case(
        asking({"cpu": "1", "hugepages-x": "2Mi"}), f"{MAIN}.resources.limits.hugepages-x"
    ),
    "two containers of one name": Case(pod(container(), container()), "spec.containers[1].name"),
    "an init container with a container's name": Case(
        pod(initContainers=[container()]), "spec.initContainers[0].name"
    ),
    "a container's name that is no label": Case(pod(container("A")), f"{MAIN}.name"),
    "a container without a name": Case(pod({"image": "train"}), f"{MAIN}.name"),
    "claims of a pod as a whole": Case(
        pod(resources={"claims": [{"name": "gpus"}], "limits": {"cpu": "1"}}, resourceClaims=[ONE]),
        "spec.resources.claims",
    ),
    "GPUs of a pod as a whole": Case(pod(resources={"limits": {GPU: "1"}}), f"spec.resources.limits.{GPU}"),
    "less than its containers": Case(
        pod(container(requests={"cpu": "2"}), resources={"requests": {"cpu": "1500m"}}), "spec.resources.requests.cpu"
    ),
    "a container's limit above that of its pod": Case(
        pod(container(limits={"memory": "2Gi"}, requests={"memory": "1Mi"}), resources={"limits": {"memory": "1Gi"}}),
        f"{MAIN}.resources.limits.memory",
    ),
    "containers that request more than the limit of their pod": Case(
        pod(container(requests={"cpu": "2"}), resources={"limits": {"cpu": "1"}}), "spec.resources.requests"
    ),
    "a sidecar whose limit is more than that of its pod": Case(
        pod(
            container(requests={"cpu": "1"}),
            resources={"limits": {"cpu": "2"}},
            initContainers=[{**container("side", limits={"cpu": "3"}), "restartPolicy": "Always"}],
        ),
        "spec.resources.requests",
    ),
    "resources of a pod as a whole on Windows": Case(
        pod(resources={"limits": {"cpu": "1"}}, os={"name": "windows"}), "spec.resources"
    ),
    "no container": Case({**pod(), "spec": {"containers": []}}, "spec.containers"),
    "a container without an image": Case(pod({"name": "main"}), f"{MAIN}.image"),
    "a port of the node twice": Case(
        ports({"containerPort": 1, "hostPort": 9}, {"containerPort": 2, "hostPort": 9}), f"{MAIN}.ports[1].hostPort"
    ),
    "a port of the node twice in its network": Case(
        ports({"containerPort": 9}, {"containerPort": 9}, hostNetwork=True), f"{MAIN}.ports[1].hostPort"
    ),
    "another port in the node's network": Case(
        ports({"containerPort": 1, "hostPort": 9}, hostNetwork=True), f"{MAIN}.ports[0].hostPort"
    ),
    "a port above all": Case(ports({"containerPort": 65536}), f"{MAIN}.ports[0].containerPort"),
    "no port": Case(ports({"hostPort": 9}), f"{MAIN}.ports[0].containerPort"),
    "a protocol that nobody knows": Case(ports({"containerPort": 1, "protocol": "tcp"}), f"{MAIN}.ports[0].protocol"),
    "a port's name that is too long": Case(ports({"containerPort": 1, "name": "x" * 16}), f"{MAIN}.ports[0].name"),
    "a probe of an init container": Case(
        pod(initContainers=[{**container("first"), "livenessProbe": {"tcpSocket": {"port": 1}}}]),
        "spec.initContainers[0].livenessProbe",
    ),
    "a skew of 0": Case(spread(maxSkew=0), f"{SPREAD}.maxSkew"),
    "a spread over nothing": Case(spread(topologyKey=""), f"{SPREAD}.topologyKey"),
    "a spread that does nothing": Case(spread(whenUnsatisfiable="Never"), f"{SPREAD}.whenUnsatisfiable"),
    "a number of domains that is only wanted": Case(
        spread(whenUnsatisfiable="ScheduleAnyway", minDomains=2), f"{SPREAD}.minDomains"
    ),
    "no domains": Case(spread(minDomains=0), f"{SPREAD}.minDomains"),
    "a spread twice": Case(
        spread({"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}),
        f"{SPREAD}.{{topologyKey, whenUnsatisfiable}}",
    ),
    "keys of labels without a selector": Case(spread(matchLabelKeys=["a"]), f"{SPREAD}.matchLabelKeys"),
    "a key of a label that is selected, too": Case(
        spread(matchLabelKeys=["a"], labelSelector=SELECTOR, labels={"a": "b"}), f"{SPREAD}.matchLabelKeys[0]"
    ),
    "a key of a label that is no key": Case(
        spread(matchLabelKeys=["a b"], labelSelector=SELECTOR), f"{SPREAD}.matchLabelKeys[0]"
    ),
    "a policy that nobody knows": Case(spread(nodeTaintsPolicy="Obey"), f"{SPREAD}.nodeTaintsPolicy"),
    "a toleration of all values of one": Case(
        tolerating(key="a", operator="Exists", value="x"), "spec.tolerations[0].operator"
    ),
    "a toleration of no key": Case(tolerating(value="x"), "spec.tolerations[0].operator"),
    "a toleration by an unknown operator": Case(
        tolerating(key="a", operator="Like"), "spec.tolerations[0].operator"
    ),
    "a toleration of a number, which is off by default": Case(
        tolerating(key="a", operator="Gt", value="1"), "spec.tolerations[0].operator"
    ),
    "a toleration of an unknown effect": Case(
        tolerating(key="a", operator="Exists", effect="Never"), "spec.tolerations[0].effect"
    ),
    "a time for what is not evicted": Case(
        tolerating(key="a", operator="Exists", effect="NoSchedule", tolerationSeconds=1), "spec.tolerations[0].effect"
    ),
    "a toleration's key that is no key": Case(
        tolerating(key="a b", operator="Exists"), "spec.tolerations[0].key"
    ),
    "a node's label that is no key": Case(pod(nodeSelector={"a b": "c"}), "spec.nodeSelector.a b"),
    "a node's label that is no value": Case(pod(nodeSelector={"a": "b c"}), "spec.nodeSelector.a"),
    "no term of nodes": Case(
        pod(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}), NODES
    ),
    "nodes in nothing": Case(on_nodes(requirement("In")), f"{NODES}[0].matchExpressions[0].values"),
    "nodes with two numbers": Case(
        on_nodes(requirement("Gt", "1", "2")), f"{NODES}[0].matchExpressions[0].values"
    ),
    "nodes with a label of a value": Case(
        on_nodes(requirement("Exists", "a")), f"{NODES}[0].matchExpressions[0].values"
    ),
    "nodes by an unknown operator": Case(
        on_nodes(requirement("Is", "a")), f"{NODES}[0].matchExpressions[0].operator"
    ),
    "nodes with a value that is none": Case(
        on_nodes(requirement("In", "a b")), f"{NODES}[0].matchExpressions[0].values[0]"
    ),
    "nodes by an unknown field": Case(
        on_nodes({"matchFields": [{"key": "spec.name", "operator": "In", "values": ["a"]}]}),
        f"{NODES}[0].matchFields[0].key",
    ),
    "two nodes by their names": Case(
        on_nodes({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]}),
        f"{NODES}[0].matchFields[0].values",
    ),
    "nodes of no weight": Case(
        on_nodes(weight=0, preference=requirement("Exists")), f"spec.affinity.nodeAffinity.{PREFERRED}[0].weight"
    ),
    "pods without a domain": Case(beside(topologyKey=None), f"{PODS}.topologyKey"),
    "pods in a domain that is no key": Case(beside(topologyKey="a b"), f"{PODS}.topologyKey"),
    "pods with a greater label": Case(
        beside(labelSelector=requirement("Gt", "1")), f"{PODS}.labelSelector.matchExpressions[0].operator"
    ),
    "pods with a label that is no key": Case(
        beside(labelSelector={"matchLabels": {"a b": "c"}}), f"{PODS}.labelSelector.matchLabels.a b"
    ),
    "pods of a namespace that is no name": Case(beside(namespaces=["A"]), f"{PODS}.namespaces[0]"),
    "a label that is the same and is not": Case(
        beside(matchLabelKeys=["c"], mismatchLabelKeys=["c"]), f"{PODS}.matchLabelKeys[0]"
    ),
    "pods of too much weight": Case(
        beside(weight=101), f"spec.affinity.podAntiAffinity.{PREFERRED}[0].weight"
    ),
    "a mount of no volume": Case(mounting({"name": "nope", "mountPath": "/a"}), f"{MAIN}.volumeMounts[0].name"),
    "a mount of nowhere": Case(mounting({"name": "data"}), f"{MAIN}.volumeMounts[0].mountPath"),
    "two mounts of one place": Case(
        mounting({"name": "data", "mountPath": "/a"}, {"name": "scratch", "mountPath": "/a"}),
        f"{MAIN}.volumeMounts[1].mountPath",
    ),
    "a mount of what is above": Case(
        mounting({"name": "data", "mountPath": "/a", "subPath": "../b"}), f"{MAIN}.volumeMounts[0].subPath"
    ),
    "a device of a folder": Case(
        mounting(devices=({"name": "scratch", "devicePath": "/dev/a"},)), f"{MAIN}.volumeDevices[0].name"
    ),
    "a volume that is mounted and a device": Case(
        mounting({"name": "data", "mountPath": "/a"}, devices=({"name": "data", "devicePath": "/dev/a"},)),
        f"{MAIN}.volumeMounts[0].name",
    ),
    "two volumes of one name": Case(mounting(volumes=({"name": "data"},)), "spec.volumes[2].name"),
    "a volume from two places": Case(
        mounting(volumes=({"name": "a", "emptyDir": {}, "hostPath": {"path": "/"}},)), "spec.volumes[2].hostPath"
    ),
    "a volume of no claim": Case(
        mounting(volumes=({"name": "a", "persistentVolumeClaim": {}},)),
        "spec.volumes[2].persistentVolumeClaim.claimName",
    ),
    "a volume's name that is no label": Case(mounting(volumes=({"name": "A"},)), "spec.volumes[2].name"),
    "a volume of its own without a size": Case(
        mounting(volumes=(
            {"name": "a", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}},
        )),
        "spec.volumes[2].ephemeral.volumeClaimTemplate.spec.resources.requests.storage",
    ),
    "a node for a pod that waits": Case(pod(nodeName="n", schedulingGates=[{"name": "a"}]), "spec.nodeName"),
    "a gate twice": Case(pod(schedulingGates=[{"name": "a"}, {"name": "a"}]), "spec.schedulingGates[1]"),
    "a gate that is no key": Case(pod(schedulingGates=[{"name": "a b"}]), "spec.schedulingGates[0]"),
    "a node that is no name": Case(pod(nodeName="A"), "spec.nodeName"),
    "a restart that nobody knows": Case(pod(restartPolicy="Sometimes"), "spec.restartPolicy"),
    "a label that is no value": Case(
        {**pod(), "metadata": {"name": "good", "labels": {"a": "not valid!"}}}, "metadata.labels.a"
    ),
    "an annotation that is no key": Case(
        {**pod(), "metadata": {"name": "good", "annotations": {"a b": ""}}}, "metadata.annotations.a b"
    ),
}  # fmt: skip

GOOD = {
    "a pod that asks for nothing": pod(),
    "a claim": using({"name": "gpus"}),
    "parts of a claim": using({"name": "gpus", "request": "a"}, {"name": "gpus", "request": "b"}),
    "a claim that no container uses": pod(resourceClaims=[ONE]),
    "GPUs with a limit alone": asking({GPU: "2"}),
    "GPUs as requested and limited": asking({GPU: "2"}, {GPU: "2000m"}),
    "almost one GPU, which counts as one": asking({GPU: "0.99999"}),
    "a resource of Kubernetes' own domain": asking({"kubernetes.io/batteries": "0.5"}),
    "huge pages": asking({"memory": "1Gi", "hugepages-2Mi": "4Mi"}),
    "cores of a pod as a whole": pod(
        container(requests={"cpu": "1"}), resources={"requests": {"cpu": "2"}, "limits": {"cpu": "4"}}
    ),
    "a container of each kind": pod(initContainers=[container("first")]),
    "a port of two addresses of the node": ports(
        {"containerPort": 1, "hostPort": 9, "hostIP": "10.0.0.1"},
        {"containerPort": 1, "hostPort": 9, "hostIP": "10.0.0.2"},
    ),
    "a port of the node for containers that run in turn": pod(
        {**container(), "ports": [{"containerPort": 1, "hostPort": 9}]},
        initContainers=[{**container("first"), "ports": [{"containerPort": 1, "hostPort": 9}]}],
    ),
    "a spread of each kind": spread(
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}, minDomains=2
    ),
    "a key of a label that the pod does not have": spread(
        matchLabelKeys=["c"], labelSelector={"matchExpressions": [{"key": "c", "operator": "Exists"}]}
    ),
    "a toleration of everything": tolerating(operator="Exists"),
    "nodes with a number that is none": on_nodes(requirement("Gt", "x")),
    "preferred nodes with a value that is none": on_nodes(weight=1, preference=requirement("In", "a b")),
    "a term without requirements": on_nodes({}),
    "a volume of no source": mounting({"name": "a", "mountPath": "/a"}, volumes=({"name": "a"},)),
    "a device of a claim": mounting(devices=({"name": "data", "devicePath": "/dev/a"},)),
    "a sidecar that is probed": pod(
        initContainers=[{**container("side"), "restartPolicy": "Always", "livenessProbe": {"tcpSocket": {"port": 1}}}]
    ),
}
