"""Kueue's queues as Muster's: ClusterQueues, Cohorts and LocalQueues become Queues, the resources they cover Meters.

docs/tasks/kueue.md says of each field whether it decides alike. Here every field is taken out of its object when it is
converted, and what is left then is reported: no field is dropped unseen. Kueue's names are those of v1beta1 and
v1beta2.
"""

import copy
import re
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from admission.api.values import quantities
from admission.conversion.equivalents import Object
from admission.conversion.findings import Findings, Level
from admission.conversion.queues import fields, meters
from admission.conversion.queues.fields import Converted
from admission.errors import AmountError

GROUPS = frozenset({"kueue.x-k8s.io", "config.kueue.x-k8s.io"})
_BY_USE = "UsageBasedAdmissionFairSharing"
_INITIAL = "LessThanInitialShare"

_KINDS = {
    "Workload": "Kueue makes it of a Job; Muster makes a Gang of the Job's pods",
    "AdmissionCheck": "put a scheduling gate of your own on the pods",
    "ProvisioningRequestConfig": "write NodeShapes, and provisioning: {mode: ProvisioningRequest, class: …} of a Queue",
    "MultiKueueConfig": "nothing here spans clusters but budgets with scope: Global",
    "MultiKueueCluster": "nothing here spans clusters but budgets with scope: Global",
}
_REMEDIES = {
    "admissionChecks": "put a scheduling gate of your own beside Muster's on the pods",
    "admissionChecksStrategy": "put a scheduling gate of your own beside Muster's on the pods",
    "concurrentAdmissionPolicy": "claims with firstAvailable are planned over all alternatives at once",
    "flavorFungibility": "counts between kinds of devices: preferences.whenCanBorrow of the Queue",
    "whenCanPreempt": "nobody is evicted while the gang fits any kind of devices, nor while a loan suffices",
    "preference": "nobody is evicted while the gang fits any kind of devices, nor while a loan suffices",
    "nodeLabels": "a kind in preferences of the Queue tells devices by CEL, a nodeSelector of the pods their nodes",
    "nodeTaints": "give the pods the tolerations, or the kind of devices a class of its own",
    "tolerations": "give the pods the tolerations",
    "topologyName": "name the label of nodes in muster.dev/topology of the workload",
    "levels": "name one of these labels in muster.dev/topology, or muster.dev/topology-preferred, of the workload",
    "stopPolicy": "stop the Queue, or give the namespace a child queue and stop that",
    "fairSharing": "counts with the admissionScope of its ClusterQueue: fairSharing.within of the Queue",
    "admissionScope": "fairSharing.within of the Queue",
    "borrowWithinCohort": "has no effect without reclaimWithinCohort",
    "description": "priority classes of a Queue have no description",
}
_NOTHING = "has no counterpart here"
_AMPLE = "1000000000"


@dataclass(slots=True)
class _Sums:
    """What a queue has of one resource, over all flavors. A limit is None where a flavor has none."""

    nominal: int = 0
    borrowing: int | None = 0
    lending: int = 0
    lends_all: bool = True


@dataclass(frozen=True, slots=True)
class _LocalQueue:
    """A LocalQueue. spec: the fields that are not converted yet."""

    namespace: str
    name: str
    spec: Object


@dataclass(slots=True)
class _Input:
    """What is read of other objects before queues are converted."""

    device_classes: dict[str, list[str]] = field(default_factory=dict)
    local_queues: dict[str, list[_LocalQueue]] = field(default_factory=dict)
    """By ClusterQueue."""
    priorities: list[Object] = field(default_factory=list)
    half_life: str = ""
    shares_fairly: bool | None = None
    """Whether the configuration orders by shares; None without one in the input."""

    by_shares: str = ""
    """Whom it lets a queue evict by shares, as `preemption.byShares` says it."""

    resources: dict[str, None] = field(default_factory=dict)
    transformed: dict[str, list[Object]] = field(default_factory=dict)
    """By resource that others are transformed to, what these are charged, as `spec.resources` of its Meter says it."""


def convert(objects: Sequence[Mapping[str, Any]]) -> Converted:
    """Return the Meters and Queues that Kueue's objects describe. Objects of other groups are left out."""
    found = [(copy.deepcopy(dict(one)), Findings()) for one in objects]
    ours = [(obj, findings) for obj, findings in found if str(obj.get("apiVersion")).rpartition("/")[0] in GROUPS]
    read = _Input()
    for obj, findings in ours:
        _read(obj, read, findings)
    queues: dict[str, Object] = {}
    for obj, findings in ours:
        if obj.get("kind") in ("ClusterQueue", "Cohort"):
            queue = _queue(obj, read, findings)
            if queue["metadata"]["name"] in queues:
                findings.left(
                    "metadata.name", "is a ClusterQueue's and a Cohort's: one of both Queues needs another name"
                )
                continue
            queues[queue["metadata"]["name"]] = queue
    for obj, findings in ours:
        _report_rest(obj, findings)
    for parent in {queue["spec"].get("parent") for queue in queues.values()} - {None, *queues}:
        queues[parent] = fields.new_object("Queue", parent, {})
    counted = [_meter(resource, read) for resource in read.resources]
    return Converted((*counted, *fields.parents_first(queues)), tuple(findings for _, findings in found))


def _read(obj: Object, read: _Input, findings: Findings) -> None:
    """Take what other objects say for queues out of an object."""
    spec = obj.get("spec")
    match obj.get("kind"):
        case "Configuration":
            for mapping in fields.items(fields.pop(obj, "resources", "deviceClassMappings")):
                classes = mapping.get("deviceClassNames")
                read.device_classes[str(mapping.get("name"))] = [*classes] if isinstance(classes, list) else []
            read.half_life = str(fields.pop(obj, "admissionFairSharing", "usageHalfLifeTime") or "")
            _read_sharing(obj, read)
            _read_transformations(obj, read, findings)
        case "LocalQueue" if isinstance(spec, MutableMapping):
            local = _LocalQueue(fields.name(obj, "namespace") or "default", fields.name(obj), spec)
            read.local_queues.setdefault(str(spec.pop("clusterQueue", "")), []).append(local)
            findings.changed("spec.clusterQueue", f"its name is an alias of the Queue, in namespace {local.namespace}")
        case "WorkloadPriorityClass":
            read.priorities.append({"name": fields.name(obj), "value": obj.pop("value", 0)})
            findings.changed("value", "is one of the priorityClasses of each Queue that pods may enter")
        case "Cohort" | "ClusterQueue" if isinstance(spec, MutableMapping):
            for group in fields.items(spec.get("resourceGroups")):
                resources = [
                    one
                    for flavor in fields.items(group.get("flavors"))
                    for one in fields.items(flavor.get("resources"))
                ]
                read.resources |= dict.fromkeys(str(one.get("name")) for one in resources)
        case _:
            pass


def _read_sharing(configuration: Object, read: _Input) -> None:
    """Take what the installation says of fair shares: v1beta1 has a switch, `enable`, v1beta2 has none."""
    sharing = configuration.get("fairSharing")
    given = sharing if isinstance(sharing, MutableMapping) else {}
    read.shares_fairly = sharing is not None and given.pop("enable", True) is not False
    strategies = given.pop("preemptionStrategies", None)
    if read.shares_fairly and strategies != []:
        named = strategies if isinstance(strategies, list) else [_INITIAL]
        read.by_shares = _INITIAL if _INITIAL in named else str(named[0])


def _read_transformations(configuration: Object, read: _Input, findings: Findings) -> None:
    """Take what resources are transformed to: the Meter of an output counts its inputs."""
    given = fields.items(fields.pop(configuration, "resources", "transformations"))
    for number, one in enumerate(given):
        place, source = f"resources.transformations[{number}]", str(one.get("input"))
        outputs = one.get("outputs")
        multiplier = one.get("multiplyBy")
        if multiplier or source in read.device_classes or not isinstance(outputs, Mapping):
            what = f"multiplied by {multiplier}" if multiplier else f"{source} to nothing, or a resource of devices,"
            findings.left(place, f"{what} has no counterpart: write what counts into the Meters (docs/metering.md)")
            continue
        for output, amount in outputs.items():
            try:
                counted = meters.charged(source, output, amount)
            except AmountError as error:
                findings.left(f"{place}.outputs", f"{output}: {error}")
                continue
            read.transformed.setdefault(str(output), []).append(counted)
        findings.changed(place, f"is in the Meters of {', '.join(map(str, outputs))}")
        if one.get("strategy") == "Replace":
            findings.check(
                place, f"replaces {source}, which a Meter of its own counts all the same: cover it in no queue"
            )


def _queue(obj: Object, read: _Input, findings: Findings) -> Object:
    spec = obj.get("spec")
    given: Object = spec if isinstance(spec, MutableMapping) else {}
    name = fields.name(obj)
    made: Object = {}
    for old in ("cohortName", "cohort", "parentName"):
        if parent := given.pop(old, None):
            made["parent"] = parent
    quotas = _quotas(given, findings)
    if obj["kind"] == "ClusterQueue":
        made = {**made, **_namespace_selection(given, name, read, findings)}
        quotas += _uncounted_pods(quotas, read, findings, has_parent="parent" in made)
    if quotas:
        made["quotas"] = quotas
    for field_ in ("queueingStrategy", "stopPolicy"):
        if value := given.pop(field_, None):
            made[field_] = value
    has_siblings = "parent" in made
    if sharing := _sharing(given, read, read.local_queues.get(name, []), findings, has_siblings=has_siblings):
        made["fairSharing"] = sharing
    if preemption := _preemption(given, read):
        made["preemption"] = preemption
    if "namespaceSelector" in made and read.priorities:
        made["priorityClasses"] = copy.deepcopy(read.priorities)
    findings.changed("kind", f"is Queue {name}")
    return fields.new_object("Queue", name, made)


def _uncounted_pods(quotas: Sequence[Object], read: _Input, findings: Findings, *, has_parent: bool) -> list[Object]:
    """Return an ample quota of the number of pods for a queue that does not cover them, where others do.

    It is the one resource that every pod takes, and Kueue counts it only where it is covered.
    """
    if meters.PODS not in read.resources or any(quota["meter"] == meters.PODS for quota in quotas):
        return []
    message = (
        f"does not cover {meters.PODS}, as others do: Kueue counts none of this queue, a Meter those of all queues,"
        " so its Queue has more of them than there can be, and lends none"
    )
    findings.changed("spec.resourceGroups", message)
    return [{"meter": meters.PODS, "nominal": _AMPLE, **({"lendingLimit": "0"} if has_parent else {})}]


def _namespace_selection(given: Object, name: str, read: _Input, findings: Findings) -> Object:
    """Return whose pods may enter: of the namespaces that are selected and have a LocalQueue, by its name."""
    selector, local = given.pop("namespaceSelector", None), read.local_queues.get(name, [])
    if not isinstance(selector, MutableMapping):
        return {}
    if not local:
        findings.check(
            "spec.namespaceSelector", "no LocalQueue is in the input: every namespace that it selects may enter"
        )
        return {"namespaceSelector": selector}
    namespaces = sorted({one.namespace for one in local})
    only = {"key": fields.NAMESPACE, "operator": "In", "values": namespaces}
    expressions = [*fields.items(selector.get("matchExpressions")), only]
    aliases = sorted({one.name for one in local})
    return {
        "namespaceSelector": {**selector, "matchExpressions": expressions},
        **({"aliases": aliases} if aliases else {}),
    }


def _quotas(given: Object, findings: Findings) -> list[Object]:
    """Return the quotas of a queue, each over all flavors of its resource."""
    sums: dict[str, _Sums] = {}
    flavors: dict[str, list[str]] = {}
    for group in fields.items(given.pop("resourceGroups", None)):
        for flavor in fields.items(group.get("flavors")):
            for one in fields.items(flavor.get("resources")):
                resource = str(one.get("name"))
                flavors.setdefault(resource, []).append(str(flavor.get("name")))
                try:
                    _add(sums.setdefault(resource, _Sums()), one, resource)
                except AmountError as error:
                    findings.left("spec.resourceGroups", f"{resource}: {error}")
    for resource, kinds in flavors.items():
        if len(kinds) > 1:
            message = (
                f"the quotas of {resource} of the flavors {', '.join(kinds)} are added up: to keep them apart give"
                " each a Meter with a selector, and the Queue preferences.kinds (docs/tasks/flavors.md)"
            )
            findings.left("spec.resourceGroups", message)
    return [_quota(resource, found) for resource, found in sums.items()]


def _add(sums: _Sums, one: Mapping[str, Any], resource: str) -> None:
    nominal = meters.quota_amount(one.get("nominalQuota", 0), resource)
    borrowing, lending = one.get("borrowingLimit"), one.get("lendingLimit")
    sums.nominal += nominal
    if borrowing is None or sums.borrowing is None:
        sums.borrowing = None
    else:
        sums.borrowing += meters.quota_amount(borrowing, resource)
    sums.lending += nominal if lending is None else meters.quota_amount(lending, resource)
    sums.lends_all = sums.lends_all and lending is None


def _quota(resource: str, sums: _Sums) -> Object:
    return {
        "meter": meters.meter_name(resource),
        "nominal": quantities.render(sums.nominal),
        **({} if sums.borrowing is None else {"borrowingLimit": quantities.render(sums.borrowing)}),
        **({} if sums.lends_all else {"lendingLimit": quantities.render(sums.lending)}),
    }


def _sharing(
    given: Object, read: _Input, local: Sequence[_LocalQueue], findings: Findings, *, has_siblings: bool
) -> Object:
    found: Object = {}
    weight = fields.pop(given, "fairSharing", "weight")
    if read.shares_fairly is False and weight is not None:
        findings.check("spec.fairSharing.weight", "has no effect, since the configuration has no fairSharing: left out")
    elif weight is not None:
        found["weight"] = str(weight)
        if read.shares_fairly is None:
            message = (
                "counts in Kueue where its configuration has fairSharing: give it as input, or take the weight out"
            )
            findings.check("spec.fairSharing.weight", message)
    elif read.shares_fairly and has_siblings:
        found["weight"] = "1"
    if fields.get(given, "admissionScope", "admissionMode") == _BY_USE:
        fields.pop(given, "admissionScope", "admissionMode")
        taken = [(one.namespace, fields.pop(one.spec, "fairSharing", "weight")) for one in local]
        weights = {namespace: weight for namespace, weight in taken if weight is not None}
        found["within"] = {
            "by": "Namespace",
            **({"halfLife": read.half_life} if read.half_life else {}),
            **({"weights": [{"name": name, "weight": str(one)} for name, one in weights.items()]} if weights else {}),
        }
    return found


def _preemption(given: Object, read: _Input) -> Object:
    found = {
        "withinQueue": fields.pop(given, "preemption", "withinClusterQueue"),
        "reclaim": fields.pop(given, "preemption", "reclaimWithinCohort"),
    }
    # Without reclaim it has no effect, and a Queue that says so is refused: it is reported.
    if (found["reclaim"] or "Never") != "Never":
        found["borrowWithinCohort"] = fields.pop(given, "preemption", "borrowWithinCohort")
        found["byShares"] = read.by_shares or None
    return {name: value for name, value in found.items() if value is not None}


def _meter(resource: str, read: _Input) -> Object:
    """Return the Meter of a resource that queues cover: of devices, or of what pods request of nodes."""
    if resource in read.device_classes:
        return meters.for_devices(resource, read.device_classes[resource])
    return meters.for_node_resource(resource, read.transformed.get(resource, ()))


def _report_rest(obj: Object, findings: Findings) -> None:
    """Report the fields of an object that are not converted."""
    kind = str(obj.get("kind"))
    if kind in _KINDS:
        findings.left("kind", f"{kind}: {_KINDS[kind]}")
        return
    if kind == "Configuration":
        rest = sorted({path.partition(".")[0] for path in fields.leaves(obj, "")} - {"apiVersion", "kind", "metadata"})
        if rest:
            message = f"{', '.join(rest)}: of the installation; docs/tasks/kueue.md has what counts for queues"
            findings.check("kind", message)
        return
    body = {name: value for name, value in obj.items() if name not in ("apiVersion", "kind", "metadata", "status")}
    for path in fields.leaves(body, ""):
        part = next((name for name in reversed(re.findall(r"[A-Za-z]+", path)) if name in _REMEDIES), "")
        findings.add(Level.LEFT, path, _REMEDIES.get(part, _NOTHING))
