"""Pods that differ from a good one in one thing apart from where they may be, and the field at fault.

Their environment, probes, security, DNS and files. The unit tests judge them by our rules; tests/e2e/test_validation.py
sends the same ones to a real API server.
"""

from typing import Any

from tests.unit.api.cases import Case, Json, with_
from tests.unit.api.pods import MAIN, container, pod

ENV = f"{MAIN}.env[0]"
SOURCES = "spec.volumes[0].projected.sources"
MUST = {"command": ["true"]}
PORT = {"port": 80}


def main(*, spec: Json | None = None, **fields: Any) -> Json:
    return pod({**container(), **fields}, **(spec or {}))


def variable(**fields: Any) -> Json:
    return main(env=[{"name": "A", **fields}])


def taken(**source: Any) -> Json:
    return variable(valueFrom=source)


def filed(volume: str, *, volumes: list[Json] | None = None, **file: Any) -> Json:
    """Return a pod with a variable of a file of a volume."""
    source = with_({"volumeName": volume, "path": "a", "key": "B"}, file)
    env = [{"name": "A", "valueFrom": {"fileKeyRef": source}}]
    return main(env=env, spec={"volumes": [{"name": "a"}] if volumes is None else volumes})


def noted(name: str, text: str, *, spec: Json | None = None, **context: Any) -> Json:
    """Return a pod with an annotation. context: the security context of its container."""
    found = main(securityContext=context, spec=spec)
    return {**found, "metadata": {**found["metadata"], "annotations": {name: text}}}


def probing(kind: str = "livenessProbe", **probe: Any) -> Json:
    return main(**{kind: probe})


def secured(**context: Any) -> Json:
    return main(securityContext=context)


def safe(*, spec: Json | None = None, **context: Any) -> Json:
    return pod(securityContext=context, **(spec or {}))


def volume(**source: Any) -> Json:
    return pod(volumes=[{"name": "a", **source}])


def projected(*sources: Json) -> Json:
    return volume(projected={"sources": list(sources)})


def token(**fields: Any) -> Json:
    # Before it is validated, admission gives a pod the account "default".
    return projected({"serviceAccountToken": fields})


def resizing(name: str, restart: str, *, times: int = 1, **spec: Any) -> Json:
    return main(resizePolicy=[{"resourceName": name, "restartPolicy": restart}] * times, spec=spec)


def first(**fields: Any) -> Json:
    return pod(initContainers=[{**container("first"), **fields}])


ENVIRONMENT = {
    "a variable without a name": Case(main(env=[{"value": "a"}]), f"{ENV}.name"),
    "a variable with an equals sign": Case(variable(name="A=B"), f"{ENV}.name"),
    "a variable of a control character": Case(variable(name="A\tB"), f"{ENV}.name"),
    "a value and a source": Case(
        variable(value="a", valueFrom={"fieldRef": {"fieldPath": "metadata.name"}}), f"{ENV}.valueFrom"
    ),
    "a value from nowhere": Case(taken(), f"{ENV}.valueFrom"),
    "a value from two sources": Case(
        taken(fieldRef={"fieldPath": "metadata.name"}, secretKeyRef={"name": "a", "key": "b"}), f"{ENV}.valueFrom"
    ),
    "a field that pods do not have": Case(
        taken(fieldRef={"fieldPath": "spec.foo"}), f"{ENV}.valueFrom.fieldRef.fieldPath"
    ),
    "a field without a path": Case(taken(fieldRef={}), f"{ENV}.valueFrom.fieldRef.fieldPath"),
    "a field of another version": Case(
        taken(fieldRef={"apiVersion": "v2", "fieldPath": "metadata.name"}), f"{ENV}.valueFrom.fieldRef.fieldPath"
    ),
    "all labels as a value": Case(
        taken(fieldRef={"fieldPath": "metadata.labels"}), f"{ENV}.valueFrom.fieldRef.fieldPath"
    ),
    "a label that is no key": Case(
        taken(fieldRef={"fieldPath": "metadata.labels['a b']"}), f"{ENV}.valueFrom.fieldRef.fieldPath"
    ),
    "an amount that containers do not have": Case(
        taken(resourceFieldRef={"resource": "limits.gpu"}), f"{ENV}.valueFrom.resourceFieldRef.resource"
    ),
    "an amount of nothing": Case(taken(resourceFieldRef={}), f"{ENV}.valueFrom.resourceFieldRef.resource"),
    "cores in thousands": Case(
        taken(resourceFieldRef={"resource": "limits.cpu", "divisor": "1k"}),
        f"{ENV}.valueFrom.resourceFieldRef.divisor",
    ),
    "memory in pages": Case(
        taken(resourceFieldRef={"resource": "limits.memory", "divisor": "4Ki"}),
        f"{ENV}.valueFrom.resourceFieldRef.divisor",
    ),
    "a key of nothing": Case(taken(secretKeyRef={"key": "a"}), f"{ENV}.valueFrom.secretKeyRef.name"),
    "a setting without a key": Case(taken(configMapKeyRef={"name": "a"}), f"{ENV}.valueFrom.configMapKeyRef.key"),
    "a key that is none": Case(
        taken(configMapKeyRef={"name": "a", "key": "b/c"}), f"{ENV}.valueFrom.configMapKeyRef.key"
    ),
    "variables from nowhere": Case(main(envFrom=[{"prefix": "A"}]), f"{MAIN}.envFrom[0]"),
    "variables from two sources": Case(
        main(envFrom=[{"configMapRef": {"name": "a"}, "secretRef": {"name": "b"}}]), f"{MAIN}.envFrom[0]"
    ),
    "variables of a secret without a name": Case(
        main(envFrom=[{"secretRef": {}}]), f"{MAIN}.envFrom[0].secretRef.name"
    ),
    "a file of no volume": Case(filed("a", volumes=[]), f"{ENV}.valueFrom.fileKeyRef.volumeName"),
    "a file of a volume that is not the pod's own": Case(
        filed("a", volumes=[{"name": "a", "configMap": {"name": "a"}}]), f"{ENV}.valueFrom.fileKeyRef.volumeName"
    ),
    "a file without a path": Case(filed("a", path=""), f"{ENV}.valueFrom.fileKeyRef.path"),
    "a file above its volume": Case(filed("a", path="a/../b"), f"{ENV}.valueFrom.fileKeyRef.path"),
    "a file without a key": Case(filed("a", key=None), f"{ENV}.valueFrom.fileKeyRef.key"),
    "a key of a file that is none": Case(filed("a", key="A=B"), f"{ENV}.valueFrom.fileKeyRef.key"),
    "variables with a prefix that is none": Case(
        main(envFrom=[{"prefix": "A=", "secretRef": {"name": "a"}}]), f"{MAIN}.envFrom[0].prefix"
    ),
}  # fmt: skip

HANDLERS = {
    "a probe of nothing": Case(probing(periodSeconds=5), f"{MAIN}.livenessProbe"),
    "a probe of two kinds": Case(probing(exec=MUST, httpGet=PORT), f"{MAIN}.livenessProbe.httpGet"),
    "a probe without a command": Case(probing(exec={}), f"{MAIN}.livenessProbe.exec.command"),
    "a probe of no port": Case(probing(httpGet={"path": "/"}), f"{MAIN}.livenessProbe.httpGet.port"),
    "a probe of a port that there is not": Case(
        probing(tcpSocket={"port": 65536}), f"{MAIN}.livenessProbe.tcpSocket.port"
    ),
    "a probe of a port without a letter": Case(probing(httpGet={"port": "80"}), f"{MAIN}.livenessProbe.httpGet.port"),
    "a probe of another scheme": Case(
        probing(httpGet={**PORT, "scheme": "http"}), f"{MAIN}.livenessProbe.httpGet.scheme"
    ),
    "a probe with a header that is none": Case(
        probing(httpGet={**PORT, "httpHeaders": [{"name": "a b", "value": "c"}]}),
        f"{MAIN}.livenessProbe.httpGet.httpHeaders[0].name",
    ),
    "a call of no port": Case(probing(grpc={"port": 0}), f"{MAIN}.livenessProbe.grpc.port"),
    "a probe in the past": Case(
        probing(exec=MUST, initialDelaySeconds=-1), f"{MAIN}.livenessProbe.initialDelaySeconds"
    ),
    "a probe that must succeed twice": Case(
        probing(exec=MUST, successThreshold=2), f"{MAIN}.livenessProbe.successThreshold"
    ),
    "a first probe that must succeed twice": Case(
        probing("startupProbe", exec=MUST, successThreshold=2), f"{MAIN}.startupProbe.successThreshold"
    ),
    "a probe that ends readiness": Case(
        probing("readinessProbe", exec=MUST, terminationGracePeriodSeconds=5),
        f"{MAIN}.readinessProbe.terminationGracePeriodSeconds",
    ),
    "a probe that kills at once": Case(
        probing(exec=MUST, terminationGracePeriodSeconds=0), f"{MAIN}.livenessProbe.terminationGracePeriodSeconds"
    ),
    "an end without a handler": Case(main(lifecycle={"preStop": {}}), f"{MAIN}.lifecycle.preStop"),
    "a start of two kinds": Case(
        main(lifecycle={"postStart": {"exec": MUST, "tcpSocket": PORT}}), f"{MAIN}.lifecycle.postStart.tcpSocket"
    ),
    "a sleep that is longer than the end": Case(
        main(lifecycle={"preStop": {"sleep": {"seconds": 31}}}), f"{MAIN}.lifecycle.preStop.sleep"
    ),
}

CONTAINERS = {
    "an image that is pulled at times": Case(main(imagePullPolicy="Sometimes"), f"{MAIN}.imagePullPolicy"),
    "a last message from nowhere": Case(main(terminationMessagePolicy="Logs"), f"{MAIN}.terminationMessagePolicy"),
    "a resize of devices": Case(resizing("gpu", "NotRequired"), f"{MAIN}.resizePolicy[0].resourceName"),
    "a resize twice": Case(resizing("cpu", "NotRequired", times=2), f"{MAIN}.resizePolicy[1].resourceName"),
    "a resize of another kind": Case(resizing("cpu", "Never"), f"{MAIN}.resizePolicy[0].restartPolicy"),
    "a resize that restarts what never restarts": Case(
        resizing("cpu", "RestartContainer", restartPolicy="Never"), f"{MAIN}.resizePolicy[0].restartPolicy"
    ),
    "a resize that restarts an init container": Case(
        first(resizePolicy=[{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]),
        "spec.initContainers[0].resizePolicy[0].restartPolicy",
    ),
    "rules of restarts without a policy": Case(
        main(restartPolicyRules=[{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]),
        f"{MAIN}.restartPolicy",
    ),
    "a restart by no exit code": Case(
        main(restartPolicy="Never", restartPolicyRules=[{"action": "Restart"}]),
        f"{MAIN}.restartPolicyRules[0].exitCodes",
    ),
    "a restart by an operator that is none": Case(
        main(
            restartPolicy="Never",
            restartPolicyRules=[{"action": "Restart", "exitCodes": {"operator": "Is", "values": [1]}}],
        ),
        f"{MAIN}.restartPolicyRules[0].exitCodes.operator",
    ),
    "a rule that does nothing": Case(
        main(
            restartPolicy="Never",
            restartPolicyRules=[{"action": "Stop", "exitCodes": {"operator": "In", "values": [1]}}],
        ),
        f"{MAIN}.restartPolicyRules[0].action",
    ),
}  # fmt: skip

CONTEXT = f"{MAIN}.securityContext"
POD_CONTEXT = "spec.securityContext"
SECURITY = {
    "privileges without escalation": Case(secured(privileged=True, allowPrivilegeEscalation=False), CONTEXT),
    "an administrator without escalation": Case(
        secured(allowPrivilegeEscalation=False, capabilities={"add": ["CAP_SYS_ADMIN"]}), CONTEXT
    ),
    "a user below none": Case(secured(runAsUser=-1), f"{CONTEXT}.runAsUser"),
    "a group that is too large": Case(secured(runAsGroup=2**31), f"{CONTEXT}.runAsGroup"),
    "a mount of /proc of another kind": Case(secured(procMount="Open"), f"{CONTEXT}.procMount"),
    "an unmasked /proc beside the node's users": Case(secured(procMount="Unmasked"), f"{CONTEXT}.procMount"),
    "a profile without a type": Case(secured(seccompProfile={}), f"{CONTEXT}.seccompProfile.type"),
    "a profile of another type": Case(secured(seccompProfile={"type": "Mine"}), f"{CONTEXT}.seccompProfile.type"),
    "a local profile without a file": Case(
        secured(seccompProfile={"type": "Localhost"}), f"{CONTEXT}.seccompProfile.localhostProfile"
    ),
    "a local profile at the root": Case(
        secured(seccompProfile={"type": "Localhost", "localhostProfile": "/a"}),
        f"{CONTEXT}.seccompProfile.localhostProfile",
    ),
    "the runtime's profile with a file": Case(
        secured(seccompProfile={"type": "RuntimeDefault", "localhostProfile": "a"}),
        f"{CONTEXT}.seccompProfile.localhostProfile",
    ),
    "a padded profile": Case(
        secured(appArmorProfile={"type": "Localhost", "localhostProfile": " a"}),
        f"{CONTEXT}.appArmorProfile.localhostProfile",
    ),
    "a pod's group below none": Case(safe(fsGroup=-1), f"{POD_CONTEXT}.fsGroup"),
    "a pod's user below none": Case(safe(runAsUser=-1), f"{POD_CONTEXT}.runAsUser"),
    "one of a pod's groups below none": Case(safe(supplementalGroups=[1, -1]), f"{POD_CONTEXT}.supplementalGroups[1]"),
    "a change of groups of another kind": Case(safe(fsGroupChangePolicy="Never"), f"{POD_CONTEXT}.fsGroupChangePolicy"),
    "groups that are mixed": Case(safe(supplementalGroupsPolicy="Mix"), f"{POD_CONTEXT}.supplementalGroupsPolicy"),
    "a pod's profile of another type": Case(
        safe(seccompProfile={"type": "Mine"}), f"{POD_CONTEXT}.seccompProfile.type"
    ),
    "a setting of the kernel without a name": Case(safe(sysctls=[{"value": "1"}]), f"{POD_CONTEXT}.sysctls[0].name"),
    "a setting of the kernel that is none": Case(
        safe(sysctls=[{"name": "Kernel", "value": "1"}]), f"{POD_CONTEXT}.sysctls[0].name"
    ),
    "a setting of the kernel twice": Case(
        safe(sysctls=[{"name": "net.core.somaxconn", "value": "1"}] * 2), f"{POD_CONTEXT}.sysctls[1].name"
    ),
    "a setting of the node's network": Case(
        safe(sysctls=[{"name": "net.core.somaxconn", "value": "1"}], spec={"hostNetwork": True}),
        f"{POD_CONTEXT}.sysctls[0].name",
    ),
    "a setting of the node's memory": Case(
        safe(sysctls=[{"name": "kernel.shmmax", "value": "1"}], spec={"hostIPC": True}),
        f"{POD_CONTEXT}.sysctls[0].name",
    ),
    "Windows on Linux": Case(safe(windowsOptions={}, spec={"os": {"name": "linux"}}), f"{POD_CONTEXT}.windowsOptions"),
    "Linux on Windows": Case(safe(fsGroup=1, spec={"os": {"name": "windows"}}), f"{POD_CONTEXT}.fsGroup"),
    "the node's processes on Windows": Case(pod(os={"name": "windows"}, hostPID=True), "spec.hostPID"),
    "a user of Linux on Windows": Case(
        main(securityContext={"runAsUser": 1}, spec={"os": {"name": "windows"}}), f"{CONTEXT}.runAsUser"
    ),
}

NETWORK = {
    "a name of a node instead of its own": Case(
        pod(hostnameOverride="a", hostNetwork=True), "spec.hostnameOverride"
    ),
    "a full name beside another": Case(
        pod(hostnameOverride="a", setHostnameAsFQDN=True), "spec.hostnameOverride"
    ),
    "a long name instead of its own": Case(pod(hostnameOverride="x" * 65), "spec.hostnameOverride"),
    "no name instead of its own": Case(pod(hostnameOverride=""), "spec.hostnameOverride"),
    "no names and no servers": Case(pod(dnsPolicy="None"), "spec.dnsConfig"),
    "no names and an empty list of servers": Case(pod(dnsPolicy="None", dnsConfig={}), "spec.dnsConfig.nameservers"),
    "four servers of names": Case(
        pod(dnsConfig={"nameservers": ["1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4"]}), "spec.dnsConfig.nameservers"
    ),
    "a server of names by its name": Case(pod(dnsConfig={"nameservers": ["a"]}), "spec.dnsConfig.nameservers[0]"),
    "33 domains": Case(pod(dnsConfig={"searches": ["a"] * 33}), "spec.dnsConfig.searches"),
    "domains that are too long": Case(
        pod(dnsConfig={"searches": [".".join(["x" * 60] * 4)] * 9}), "spec.dnsConfig.searches"
    ),
    "a domain that is none": Case(pod(dnsConfig={"searches": ["a b"]}), "spec.dnsConfig.searches[0]"),
    "an option without a name": Case(pod(dnsConfig={"options": [{"value": "1"}]}), "spec.dnsConfig.options[0]"),
    "an alias of no address": Case(pod(hostAliases=[{"ip": "a", "hostnames": ["b"]}]), "spec.hostAliases[0].ip"),
    "an alias that is no name": Case(
        pod(hostAliases=[{"ip": "10.0.0.1", "hostnames": ["a_b"]}]), "spec.hostAliases[0].hostnames[0]"
    ),
    "processes of the pod and of the node": Case(
        pod(hostPID=True, shareProcessNamespace=True), "spec.shareProcessNamespace"
    ),
    "users of its own and the node's network": Case(pod(hostUsers=False, hostNetwork=True), "spec.hostNetwork"),
    "users of its own and the node's processes": Case(pod(hostUsers=False, hostPID=True), "spec.hostPID"),
    "a readiness that is no type": Case(
        pod(readinessGates=[{"conditionType": "a b"}]), "spec.readinessGates[0].conditionType"
    ),
    "a deadline in the past": Case(pod(activeDeadlineSeconds=-1), "spec.activeDeadlineSeconds"),
}  # fmt: skip

FILES = {
    "a mode in decimal digits": Case(
        volume(configMap={"name": "a", "defaultMode": 777}), "spec.volumes[0].configMap.defaultMode"
    ),
    "a mode of one file": Case(
        volume(secret={"secretName": "a", "items": [{"key": "b", "path": "c", "mode": 512}]}),
        "spec.volumes[0].secret.items[0].mode",
    ),
    "a file of no key": Case(
        volume(configMap={"name": "a", "items": [{"path": "b"}]}), "spec.volumes[0].configMap.items[0].key"
    ),
    "a file without a path": Case(
        volume(configMap={"name": "a", "items": [{"key": "b"}]}), "spec.volumes[0].configMap.items[0].path"
    ),
    "a file above its volume": Case(
        volume(configMap={"name": "a", "items": [{"key": "b", "path": "../b"}]}),
        "spec.volumes[0].configMap.items[0].path",
    ),
    "a file at the root": Case(
        volume(configMap={"name": "a", "items": [{"key": "b", "path": "/b"}]}),
        "spec.volumes[0].configMap.items[0].path",
    ),
    "a file of a field that pods do not have": Case(
        volume(downwardAPI={"items": [{"path": "a", "fieldRef": {"fieldPath": "status.podIP"}}]}),
        "spec.volumes[0].downwardAPI.items[0].fieldRef.fieldPath",
    ),
    "a file of nothing": Case(
        volume(downwardAPI={"items": [{"path": "a"}]}), "spec.volumes[0].downwardAPI.items[0]"
    ),
    "a file of an amount of no container": Case(
        volume(downwardAPI={"items": [{"path": "a", "resourceFieldRef": {"resource": "limits.cpu"}}]}),
        "spec.volumes[0].downwardAPI.items[0].resourceFieldRef.containerName",
    ),
    "a source of two kinds": Case(projected({"secret": {"name": "a"}, "configMap": {"name": "b"}}), f"{SOURCES}[0]"),
    "a source without a name": Case(projected({"secret": {}}), f"{SOURCES}[0].secret.name"),
    "two files of one path": Case(
        projected(*({"secret": {"name": name, "items": [{"key": "a", "path": "b"}]}} for name in "cd")), f"{SOURCES}[1]"
    ),
    "a token of five seconds": Case(
        token(path="a", expirationSeconds=5), f"{SOURCES}[0].serviceAccountToken.expirationSeconds"
    ),
    "a token without a path": Case(token(), f"{SOURCES}[0].serviceAccountToken.path"),
    "a mode of all sources in decimal digits": Case(
        volume(projected={"sources": [], "defaultMode": 644}), "spec.volumes[0].projected.defaultMode"
    ),
}  # fmt: skip

NEEDED: dict[str, tuple[Json, str]] = {
    "cephfs": ({}, "monitors"),
    "rbd": ({"image": "a"}, "monitors"),
    "cinder": ({}, "volumeID"),
    "photonPersistentDisk": ({}, "pdID"),
    "portworxVolume": ({}, "volumeID"),
    "vsphereVolume": ({}, "volumePath"),
    "azureFile": ({"secretName": "a"}, "shareName"),
    "glusterfs": ({"endpoints": "a"}, "path"),
    "quobyte": ({"registry": "a:1"}, "volume"),
    "scaleIO": ({"gateway": "a", "system": "b"}, "volumeName"),
    "storageos": ({}, "volumeName"),
    "flexVolume": ({}, "driver"),
    "gitRepo": ({}, "repository"),
    "image": ({}, "reference"),
}
"""Sources of volumes without a field, and the field."""


def mounted(*, container: Json | None = None, **mount: Any) -> Json:
    fields = {"volumeMounts": [{"name": "a", "mountPath": "/a", **mount}], **(container or {})}
    return main(spec={"volumes": [{"name": "a", "emptyDir": {}}]}, **fields)


MOUNT = f"{MAIN}.volumeMounts[0]"
VOLUMES = {
    **{
        f"a volume of {source} without {field}": Case(volume(**{source: fields}), f"spec.volumes[0].{source}.{field}")
        for source, (fields, field) in NEEDED.items()
    },
    "an image that is pulled sometimes": Case(
        volume(image={"reference": "a", "pullPolicy": "Sometimes"}), "spec.volumes[0].image.pullPolicy"
    ),
    "a mount that is shared somehow": Case(mounted(mountPropagation="Both"), f"{MOUNT}.mountPropagation"),
    "a mount that reaches its node": Case(mounted(mountPropagation="Bidirectional"), f"{MOUNT}.mountPropagation"),
    "a mount that is read-only somehow": Case(mounted(recursiveReadOnly="Yes"), f"{MOUNT}.recursiveReadOnly"),
    "a mount that is read-only below alone": Case(mounted(recursiveReadOnly="Enabled"), f"{MOUNT}.recursiveReadOnly"),
    "a read-only mount that sees its node's": Case(
        mounted(readOnly=True, recursiveReadOnly="Enabled", mountPropagation="HostToContainer"),
        f"{MOUNT}.recursiveReadOnly",
    ),
}

APP_ARMOR, SECCOMP = (
    "container.apparmor.security.beta.kubernetes.io",
    "container.seccomp.security.alpha.kubernetes.io",
)
SECCOMP_OF_POD = "seccomp.security.alpha.kubernetes.io/pod"
LOCAL = {"type": "Localhost", "localhostProfile": "a"}
COST = "controller.kubernetes.io/pod-deletion-cost"
TOLERATIONS = "scheduler.alpha.kubernetes.io/tolerations"
ANNOTATIONS = {
    "a profile of another container": Case(
        noted(f"{APP_ARMOR}/other", "runtime/default"), f"metadata.annotations.{APP_ARMOR}/other"
    ),
    "a profile that is none": Case(noted(f"{APP_ARMOR}/main", "strict"), f"metadata.annotations.{APP_ARMOR}/main"),
    "two kinds of profiles": Case(
        noted(f"{APP_ARMOR}/main", "unconfined", appArmorProfile={"type": "RuntimeDefault"}),
        f"{MAIN}.securityContext.appArmorProfile.type",
    ),
    "two local profiles": Case(
        noted(f"{APP_ARMOR}/main", "localhost/b", appArmorProfile=LOCAL),
        f"{MAIN}.securityContext.appArmorProfile.localhostProfile",
    ),
    "calls by a profile that is none": Case(noted(SECCOMP_OF_POD, "strict"), f"metadata.annotations.{SECCOMP_OF_POD}"),
    "calls of a container by a file above": Case(
        noted(f"{SECCOMP}/main", "localhost/../a"), f"metadata.annotations.{SECCOMP}/main"
    ),
    "two kinds of calls": Case(
        noted(f"{SECCOMP}/main", "unconfined", seccompProfile={"type": "RuntimeDefault"}),
        f"{MAIN}.securityContext.seccompProfile.type",
    ),
    "two kinds of calls of the pod": Case(
        noted(SECCOMP_OF_POD, "localhost/b", spec={"securityContext": {"seccompProfile": LOCAL}}),
        "spec.securityContext.seccompProfile.localhostProfile",
    ),
    "a mirror of no node": Case(
        noted("kubernetes.io/config.mirror", "a"), "metadata.annotations.kubernetes.io/config.mirror"
    ),
    "a cost with a plus": Case(noted(COST, "+1"), f"metadata.annotations.{COST}"),
    "a cost of more than 32 bits": Case(noted(COST, "2147483648"), f"metadata.annotations.{COST}"),
    "tolerations that are none": Case(noted(TOLERATIONS, "{"), f"metadata.annotations.{TOLERATIONS}"),
    "a toleration of everything, but equal": Case(
        noted(TOLERATIONS, '[{"operator": "Equal"}]'), f"metadata.annotations.{TOLERATIONS}"
    ),
}

REFUSED = ENVIRONMENT | HANDLERS | CONTAINERS | SECURITY | NETWORK | FILES | VOLUMES | ANNOTATIONS

GOOD = {
    "variables of every source": main(
        env=[
            {"name": "A b.c", "value": ""},
            {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a/b']"}}},
            {"name": "C", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}},
            {"name": "D", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
            {"name": "E", "valueFrom": {"resourceFieldRef": {"resource": "requests.hugepages-2Mi", "divisor": "1Mi"}}},
            {"name": "F", "valueFrom": {"configMapKeyRef": {"name": "a", "key": ".b_c", "optional": True}}},
            {"name": "G", "valueFrom": {"secretKeyRef": {"name": "a", "key": ".b"}}},
            {"name": "H", "value": None, "valueFrom": None},
        ],
        envFrom=[{"prefix": "A-", "secretRef": {"name": "a-"}}, {"configMapRef": {"name": "b"}}],
    ),
    "a probe of each kind": main(
        livenessProbe={"grpc": {"port": 1}, "terminationGracePeriodSeconds": 1},
        readinessProbe={
            "httpGet": {"port": "http", "httpHeaders": [{"name": "A-b", "value": ""}]},
            "successThreshold": 3,
        },
        startupProbe={"tcpSocket": PORT, "failureThreshold": 0},
        lifecycle={"postStart": {"exec": MUST}, "preStop": {"sleep": {"seconds": 30}}},
    ),
    "a long sleep at a long end": main(
        lifecycle={"preStop": {"sleep": {"seconds": 300}}}, spec={"terminationGracePeriodSeconds": 300}
    ),
    "variables of a file": filed("a", optional=True),
    "a signal of a feature that is off, and so dropped": main(lifecycle={"stopSignal": "SIGNOTHING"}),
    "a profile by annotation and field": noted(f"{APP_ARMOR}/main", "localhost/a", appArmorProfile=LOCAL),
    "another profile by the annotation of a container": noted(
        f"{APP_ARMOR}/main", "runtime/default", spec={"securityContext": {"appArmorProfile": LOCAL}}
    ),
    "a profile by annotation": noted(f"{APP_ARMOR}/main", "unconfined"),
    "calls by annotation and field": noted(
        f"{SECCOMP}/main", "docker/default", seccompProfile={"type": "RuntimeDefault"}
    ),
    "calls of the pod by annotation": noted(SECCOMP_OF_POD, "localhost/a", seccompProfile=LOCAL),
    "a cost": noted(COST, "-05"),
    "tolerations by annotation": noted(TOLERATIONS, '[{"key": "a", "operator": "Exists"}]'),
    "a name instead of its own": pod(hostnameOverride="a.b"),
    "what an author leaves empty": main(
        imagePullPolicy="", terminationMessagePolicy="", securityContext={}, lifecycle={}, spec={"dnsPolicy": ""}
    ),
    "an administrator": secured(capabilities={"add": ["CAP_SYS_ADMIN"]}),
    "an administrator by another name": secured(allowPrivilegeEscalation=False, capabilities={"add": ["SYS_ADMIN"]}),
    "a context of each kind": main(
        securityContext={
            "runAsUser": 2**31 - 1,
            "seccompProfile": {"type": "Localhost", "localhostProfile": "a/b"},
            "appArmorProfile": {"type": "RuntimeDefault"},
            "procMount": "Default",
        },
        spec={
            "securityContext": {
                "fsGroup": 0,
                "supplementalGroups": [1],
                "fsGroupChangePolicy": "OnRootMismatch",
                "sysctls": [{"name": "net.core.somaxconn", "value": "1"}],
                "seccompProfile": {"type": "Unconfined"},
            },
        },
    ),
    "names of its own": pod(
        dnsPolicy="None",
        dnsConfig={
            "nameservers": ["10.0.0.1", "fd00::1"],
            "searches": ["a_b.example.com.", "."],
            "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
        },
        hostAliases=[{"ip": "10.0.0.1", "hostnames": ["a", "b.c"]}],
        readinessGates=[{"conditionType": "example.com/a"}],
        terminationGracePeriodSeconds=-1,
    ),
    "files of every source": pod(
        serviceAccountName="default",
        volumes=[
            {"name": "a", "configMap": {"name": "a", "defaultMode": 0o777, "items": [{"key": "a", "path": "b/c"}]}},
            {"name": "b", "downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
            {
                "name": "c",
                "projected": {
                    "sources": [
                        {"secret": {"name": "a"}},
                        {"configMap": {"name": "a", "items": [{"key": "a", "path": "b"}]}},
                        {"downwardAPI": {"items": [{"path": "c", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                        {"serviceAccountToken": {"path": "d", "expirationSeconds": 600}},
                        {},
                    ]
                },
            },
        ],
    ),
    "mounts that are shared": mounted(readOnly=True, recursiveReadOnly="IfPossible", mountPropagation="None"),
    "an empty list on Windows": safe(sysctls=[], spec={"os": {"name": "windows"}}),
}
