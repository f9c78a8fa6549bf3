"""What a pod's spec demands of the pods beside it: affinity terms, spread constraints, host ports; and its volumes.

The fields that the filters InterPodAffinity, PodTopologySpread and NodePorts of kube-scheduler read
(`pkg/scheduler/framework/plugins`, v1.37). Only what can keep a pod off a node is read: preferred terms and
`ScheduleAnyway` constraints are left out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from admission.api.scheduling import pod_volumes
from admission.api.scheduling.pod_volumes import PodVolume
from admission.api.values import selectors
from admission.api.values.decoding import Reader
from admission.api.values.selectors import LabelSelector, Requirement

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

DO_NOT_SCHEDULE, HONOR, IGNORE = "DoNotSchedule", "Honor", "Ignore"

ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - what an empty hostIP means; nothing is bound here


@dataclass(frozen=True, slots=True, kw_only=True)
class AffinityTerm:
    """A required term of pod affinity or anti-affinity, with its matchLabelKeys merged into the selector.

    selector: None matches no pod. namespaces: their names, the pod's own where the term names none. namespace_selector:
    None where the term has none.
    """

    topology_key: str
    selector: LabelSelector | None
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None = None

    def matches(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        """Return whether a pod is one that the term is about. namespace_labels: of the pod's namespace."""
        if self.selector is None:
            return False
        if namespace not in self.namespaces and not (
            self.namespace_selector is not None and self.namespace_selector.matches(namespace_labels)
        ):
            return False
        return self.selector.matches(labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadConstraint:
    """A topology spread constraint with `DoNotSchedule`, with its matchLabelKeys merged into the selector.

    selector: None matches no pod. min_domains: 1 where none is given. honors_affinity, honors_taints: whether nodes
    that the pod's node affinity or tolerations exclude are left out of the domains. within: the label of nodes to whose
    value on its node the pod will be bound by a node selector, if there is one: then it counts the nodes of that value
    alone, where it honors affinity.
    """

    topology_key: str
    max_skew: int
    selector: LabelSelector | None
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False
    within: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPort:
    """A port of the node that a pod takes. ip: ANY_ADDRESS where the pod names none."""

    port: int
    protocol: str = "TCP"
    ip: str = ANY_ADDRESS

    def conflicts(self, other: "HostPort") -> bool:
        """Return whether both cannot be on one node (`HostPortInfo.CheckConflict`)."""
        if (self.port, self.protocol) != (other.port, other.protocol):
            return False
        return ANY_ADDRESS in {self.ip, other.ip} or self.ip == other.ip


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingRules:
    """The rules of one pod. volumes: those that can keep it off nodes."""

    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    ports: tuple[HostPort, ...] = ()
    volumes: tuple[PodVolume, ...] = ()

    @property
    def concern_pods(self) -> bool:
        """Whether it matters to the pod where other pods are."""
        return bool(self.affinity or self.anti_affinity or self.spread or self.ports)

    @property
    def depend_on_order(self) -> bool:
        """Whether it may matter which pods came before: others that come first may make room for the pod."""
        return bool(self.affinity or self.spread)


NO_RULES = SchedulingRules()


def decode(spec: Reader, *, namespace: str, labels: Mapping[str, str]) -> SchedulingRules:
    """Decode the rules in a pod's spec. namespace, labels: of the pod."""
    affinity = spec.child("affinity")
    found = SchedulingRules(
        affinity=_terms(affinity.child("podAffinity"), namespace, labels),
        anti_affinity=_terms(affinity.child("podAntiAffinity"), namespace, labels),
        spread=tuple(
            _spread(constraint, labels)
            for constraint in spec.children("topologySpreadConstraints")
            if constraint.text("whenUnsatisfiable", DO_NOT_SCHEDULE) == DO_NOT_SCHEDULE
        ),
        ports=tuple(dict.fromkeys(_ports(spec))),
        volumes=tuple(pod_volumes.decode(spec)),
    )
    return NO_RULES if found == NO_RULES else _shared(found)


@lru_cache(maxsize=4096)
def _shared(rules: SchedulingRules) -> SchedulingRules:
    """Return equal rules as one object: pods of one template have the same."""
    return rules


def _terms(reader: Reader, namespace: str, labels: Mapping[str, str]) -> tuple[AffinityTerm, ...]:
    return tuple(_term(term, namespace, labels) for term in reader.children(REQUIRED))


def _term(reader: Reader, namespace: str, labels: Mapping[str, str]) -> AffinityTerm:
    namespaces = frozenset(reader.texts("namespaces"))
    chosen = selectors.decode_labels(reader.child("namespaceSelector")) if "namespaceSelector" in reader else None
    return AffinityTerm(
        topology_key=reader.required("topologyKey"),
        selector=_selector(reader, labels),
        namespaces=namespaces if namespaces or chosen is not None else frozenset({namespace}),
        namespace_selector=chosen,
    )


def _spread(reader: Reader, labels: Mapping[str, str]) -> SpreadConstraint:
    return SpreadConstraint(
        topology_key=reader.required("topologyKey"),
        max_skew=reader.integer("maxSkew", 1),
        selector=_selector(reader, labels),
        min_domains=reader.integer("minDomains", 1),
        honors_affinity=reader.text("nodeAffinityPolicy", HONOR) == HONOR,
        honors_taints=reader.text("nodeTaintsPolicy", IGNORE) == HONOR,
    )


def _selector(reader: Reader, labels: Mapping[str, str]) -> LabelSelector | None:
    """Return a labelSelector with matchLabelKeys and mismatchLabelKeys, which the API server merges into it."""
    if "labelSelector" not in reader:
        return None
    base = selectors.decode_labels(reader.child("labelSelector"))
    merged = [
        Requirement(key=key, operator=operator, values=(labels[key],))
        for name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in reader.texts(name)
        if key in labels
    ]
    new = tuple(one for one in merged if one not in base.requirements)
    return LabelSelector(requirements=(*base.requirements, *new)) if new else base


def _ports(spec: Reader) -> Iterable[HostPort]:
    """Yield the host ports of containers and sidecars; with hostNetwork every container port is one."""
    shares_network = spec.flag("hostNetwork")
    sidecars = (one for one in spec.children("initContainers") if one.text("restartPolicy") == "Always")
    for container in (*spec.children("containers"), *sidecars):
        for port in container.children("ports"):
            number = port.integer("hostPort") or (port.integer("containerPort") if shares_network else 0)
            if number > 0:
                yield HostPort(
                    port=number, protocol=port.text("protocol") or "TCP", ip=port.text("hostIP") or ANY_ADDRESS
                )


def node_features(spec: Reader) -> tuple[str, ...]:
    """Return the features that a node has to declare for a pod, sorted.

    As the features of `k8s.io/component-helpers/nodedeclaredfeatures` (v0.37.1) infer them for scheduling.
    """
    containers = [*spec.children("containers"), *spec.children("initContainers")]
    rules = (rule for container in containers for rule in container.children("restartPolicyRules"))
    mounts = (mount for container in containers for mount in container.children("volumeMounts"))
    needed = {
        "RestartAllContainersOnContainerExits": any(rule.text("action") == "RestartAllContainers" for rule in rules),
        "UserNamespacesHostNetworkSupport": spec.flag("hostNetwork") and not spec.flag("hostUsers", default=True),
        "VolumeBindMountOptions": any(mount.texts("bindMountOptions") for mount in mounts),
    }
    return tuple(name for name, is_needed in needed.items() if is_needed)
